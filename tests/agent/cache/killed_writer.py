"""Writes answers into one database until it is killed, fifty times over. Run by test_processes.

python killed_writer.py FILE
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from edge_agent.cache import connection, entry, key, scripts
from edge_agent.cache.entry import Kept
from edge_agent.calls import Answer, OutputTensor

ROUNDS = 50


def answer(number: int) -> Answer:
    return Answer((), (OutputTensor("y", "uint8", (3000,), number.to_bytes(4, "little") * 750),))


def digest(number: int) -> bytes:
    return number.to_bytes(4, "little") * 8


def write(file: Path, ready: int, start: int) -> None:
    database = connection.open_database(file, 5000)
    while True:
        rows = []
        for number in range(start, start + 8):
            value = entry.encode(digest(number), Kept(answer(number), entry.seconds_now()))
            assert value is not None
            row = scripts.Row(key.as_number(digest(number)), number, "b", "onnx", number, value)
            rows.append(row)
        connection.run(database, scripts.store(rows, [], 256))
        os.write(ready, b".")
        start += 8


def one_round(file: Path, chance: random.Random, start: int) -> None:
    heard, ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(file, ready, start)
        finally:
            os._exit(1)
    os.close(ready)
    assert os.read(heard, 1) == b"."
    time.sleep(chance.random() / 100)  # somewhere in the middle of a write
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(heard)


def check(file: Path) -> int:
    database = sqlite3.connect(file)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = database.execute("SELECT fingerprint, value FROM entries JOIN answers USING (id)")
    count = 0
    for number, value in found.fetchall():
        kept = entry.decode(digest(number), value)
        assert kept is not None
        assert kept.answer == answer(number)
        count += 1
    ((entries,),) = database.execute("SELECT count(*) FROM entries").fetchall()
    assert entries == count
    database.close()
    return count


def main() -> None:
    file = Path(sys.argv[1])
    chance = random.Random(5)
    for number in range(ROUNDS):
        one_round(file, chance, number * 100_000)
        assert check(file) > 0
    sys.stdout.write(f"{ROUNDS}\n")


main()
