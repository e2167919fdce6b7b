"""Several processes, and processes that die, at one database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent.cache import inspection

from .conftest import serve
from .test_faults import works

if TYPE_CHECKING:
    from tests.agent.conftest import Python

BESIDE = """
import sys
from pathlib import Path
from edge_agent.cache import connection, entry, key, scripts
from edge_agent.cache.entry import Kept
from edge_agent.calls import Answer
file, mark = Path(sys.argv[1]), sys.argv[2].encode()
for number in range(200):
    digest = mark * 30 + number.to_bytes(2, "little")
    database = connection.open_database(file, 10_000)
    value = entry.encode(digest, Kept(Answer(confident=(number % 2 == 0,)), entry.seconds_now()))
    number = int.from_bytes(mark, "little") << 16 | number
    row = scripts.Row(number, number, mark.decode(), "onnx", 1, value)
    connection.run(database, scripts.store([row], [], 1 << 20))
    ((kept,),) = database.execute(scripts.GET, (number,)).fetchall()
    assert entry.decode(digest, kept) == entry.decode(digest, value)
    database.close()
print("done")
"""
QUICKEST = """
import sys
from edge_agent.cache import connection
from pathlib import Path
opened = connection.open_database(Path(sys.argv[1]), 10_000)
print(opened.execute("SELECT count(*) FROM entries").fetchall())
"""


def test_killed_fifty_times_it_is_whole(python: Python, file: Path) -> None:
    script = Path(__file__).with_name("killed_writer.py")
    assert python.run(script, file) == "50\n"
    serve(file, works)


def test_three_processes_at_once(python: Python, file: Path) -> None:
    processes = [python.start(BESIDE, file, mark) for mark in "abc"]
    for process in processes:
        out, err = process.communicate(timeout=50)
        assert (process.returncode, out, err) == (0, "done\n", "")
    marks = [one["bundle"] for one in inspection.entries(file)]
    assert {mark: marks.count(mark) for mark in "abc"} == {"a": 200, "b": 200, "c": 200}


def test_processes_that_find_garbage_at_once_make_one_database(python: Python, file: Path) -> None:
    file.parent.mkdir(mode=0o700)
    file.write_bytes(b"garbage" * 10_000)
    file.chmod(0o600)
    processes = [python.start(QUICKEST, file) for _ in range(4)]
    for process in processes:
        out, err = process.communicate(timeout=50)
        assert (process.returncode, out, err) == (0, "[(0,)]\n", "")
    assert inspection.look(file).rebuilt is not None
