"""Whatever happens to the database costs the cache, never an answer."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from edge_agent.cache import connection, entry, inspection, key, scripts
from edge_agent.cache.cache import ResultCache
from edge_agent.cache.entry import Kept
from edge_agent.cache.faults import CacheUnusable
from edge_agent.serve_config import CacheConfig

from .conftest import QUICK, SUBJECT, answer, ask, is_root, large, query, serve, until

if TYPE_CHECKING:
    from tests.agent.conftest import Python

ROOT = Path(__file__).parents[3]
KEYS = [bytes([number]) * 32 for number in range(40)]


def row(number: int, size: int = 600) -> scripts.Row:
    value = entry.encode(KEYS[number], Kept(answer(number, size), entry.seconds_now()))
    assert value is not None
    return scripts.Row(key.as_number(KEYS[number]), number, "sha256:0", "onnx", 1, value)


def fill(file: Path) -> None:
    """Writes forty answers, and closes the database so that no log remains."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    opened = connection.open_database(file, 1000)
    connection.run(opened, scripts.store([row(n) for n in range(len(KEYS))], [], 1 << 20))
    opened.close()


def found(file: Path) -> int:
    """How many of the forty are there; none is another than it was."""
    count = 0
    opened = connection.open_database(file, 1000)
    for number, digest in enumerate(KEYS):
        try:
            rows = opened.execute(scripts.GET, (key.as_number(digest),)).fetchall()
        except sqlite3.Error:
            continue
        for (value,) in rows:
            kept = entry.decode(digest, value)
            assert kept is None or kept.answer == answer(number, 600)
            count += kept is not None
    opened.close()
    return count


async def works(cache: ResultCache, number: int = 1) -> None:
    """Answers are kept and found, by the database too."""
    await until(lambda: cache.statistics().state in ("ok", "rebuilt"))
    for _ in range(2):
        await ask(cache, large(number))
    while True:
        cache._memory.clear()
        if await ask(cache, large(number)) == answer(1):
            return
        await asyncio.sleep(0.002)


def test_flipped_bits_never_make_a_wrong_answer(file: Path, tmp_path: Path) -> None:
    fill(file)
    assert found(file) == len(KEYS)
    whole = file.read_bytes()
    chance = random.Random(20)
    seen = []
    for number in range(120):
        damaged = bytearray(whole)
        reach = 4096 if number % 2 else len(whole)  # half of them in the first page: the schema
        for _ in range(chance.choice([1, 1, 3, 40])):
            damaged[chance.randrange(reach)] ^= 1 << chance.randrange(8)
        copy = tmp_path / f"{number}" / "cache.sqlite3"
        copy.parent.mkdir(mode=0o700)
        copy.write_bytes(damaged)
        copy.chmod(0o600)
        seen.append(found(copy))
        shutil.rmtree(copy.parent)
    assert len(KEYS) in seen
    assert 0 in seen


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"not a database at all" * 1000,
        lambda data: data[: len(data) // 2],
        lambda data: data[:100],
        lambda data: data[:4096],
        lambda data: bytes(len(data)),
        lambda data: data[:16] + bytes(84) + data[100:],
        lambda data: data[:4096] + random.Random(1).randbytes(len(data) - 4096),
        lambda data: b"",
    ],
)
def test_a_damaged_file_is_made_anew(damage: Callable[[bytes], bytes], file: Path) -> None:
    fill(file)
    file.write_bytes(damage(file.read_bytes()))
    assert found(file) in range(len(KEYS))
    serve(file, works)
    assert inspection.look(file).entries >= 1


def test_what_was_rebuilt_is_told_with_its_reason(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await works(cache)
        assert cache.statistics().state == "rebuilt"
        assert cache.statistics().errors == 1

    fill(file)
    file.write_bytes(b"x" * 5000)
    serve(file, work)
    seen = inspection.look(file)
    assert seen.rebuilt is not None
    assert seen.reason == "file is not a database"


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_made_anew(version: int, file: Path) -> None:
    fill(file)
    database = sqlite3.connect(file)
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    with pytest.raises(CacheUnusable, match="another version"):
        inspection.look(file)
    serve(file, works)
    assert "another version" in str(inspection.look(file).reason)


def test_damage_that_shows_later_is_repaired_while_serving(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await works(cache)
        for number in range(2, 30):
            for _ in range(2):
                await ask(cache, large(number))
        await until(lambda: cache.statistics().entries >= 29)
        with sqlite3.connect(file) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        size = file.stat().st_size
        with open(file, "r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(size - 4096))
        cache._memory.clear()
        for number in range(1, 30):
            assert await ask(cache, large(number)) in (None, answer(1))
        await until(lambda: cache.statistics().state == "rebuilt")
        await works(cache, 99)

    serve(file, work)


def test_a_record_of_another_type_is_damage(file: Path) -> None:
    fill(file)
    database = sqlite3.connect(file)
    database.execute("UPDATE entries SET fingerprint = 'text'")
    database.commit()
    database.close()
    serve(file, works)
    assert "what can't be" in str(inspection.look(file).reason)


def test_a_database_that_vanishes_while_serving_comes_back(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await works(cache)
        for one in file.parent.iterdir():
            one.unlink()
        await until(file.exists)
        await works(cache, 2)

    serve(file, work)
    assert inspection.look(file).entries >= 1


def test_another_writer_holds_it_for_long(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_agent.cache.database._WRITER_BUSY_MS", 1)

    async def work(cache: ResultCache) -> None:
        await works(cache)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        for number in (2, 2):
            assert await ask(cache, large(number)) is None
        await until(lambda: cache.statistics().state == "off: another process holds the database")
        cache._memory.clear()
        assert await ask(cache, large(1)) == answer(1)  # reading goes on
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: cache.statistics().state == "ok")
        await works(cache, 3)

    serve(file, work)


def test_it_is_held_exclusively_from_the_start(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_agent.cache.database._WRITER_BUSY_MS", 1)
    fill(file)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")

    async def work(cache: ResultCache) -> None:
        await until(lambda: cache.statistics().state == "off: another process holds the database")
        for _ in range(3):
            await ask(cache, large(1))
        assert await ask(cache, large(1)) == answer(1)  # from memory
        other.close()
        await works(cache)

    serve(file, work)


def test_a_reader_who_never_ends_bounds_the_log(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 512 * 1024
    monkeypatch.setattr(connection, "MAX_LOG_BYTES", limit)
    monkeypatch.setattr("edge_agent.cache.database._WRITER_BUSY_MS", 1)

    async def work(cache: ResultCache) -> None:
        await works(cache)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM entries").fetchall()
        number = 0
        while not cache.statistics().state.startswith("off: another process reads"):
            number += 1
            for _ in range(2):
                ticket = cache.ticket(SUBJECT, query(b"%d" % number))
                await cache.get(ticket)
                cache.put(ticket, answer(number, 100_000))
            await asyncio.sleep(0.002)
        assert connection.log_bytes(file) < limit + 3 * 1024 * 1024
        other.close()
        await works(cache, 2)

    serve(file, work, CacheConfig(mib=2))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 192 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=192k,mode=700", "none", str(folder)]
    if not is_root() or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting isn't allowed here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    serve(small_disk / "cache.sqlite3", fill_the_disk)
    assert _integrity(small_disk / "cache.sqlite3") == "ok"


@pytest.mark.parametrize("is_filled", [True, False])
def test_a_disk_that_is_read_only(is_filled: bool, small_disk: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await until(lambda: cache.statistics().errors > 1)
        assert cache.statistics().state.startswith("off: ")
        for _ in range(2):
            await ask(cache, query(b"x"))
        assert await ask(cache, query(b"x")) == answer(1)

    file = small_disk / "cache.sqlite3"
    if is_filled:
        fill(file)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    serve(file, work)


def test_a_limit_on_files(python: Python, file: Path) -> None:
    """What a process may write to one file is less than the cache wants: as a disk that fails."""
    script = """
import resource, sys
from pathlib import Path
from tests.agent.cache import test_faults
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
test_faults.serve(Path(sys.argv[1]), test_faults.fill_the_disk)
"""
    assert python.run(f"import sys; sys.path.insert(0, {str(ROOT)!r})" + script, file) == ""
    assert _integrity(file) == "ok"


async def fill_the_disk(cache: ResultCache) -> None:
    await until(lambda: cache.statistics().state == "ok")
    number = 0
    while not cache.statistics().state.startswith("off: "):
        number += 1
        for _ in range(2):
            ticket = cache.ticket(SUBJECT, query(b"%d" % number))
            assert await cache.get(ticket) in (None, answer(number, 8000))
            cache.put(ticket, answer(number, 8000))
        await asyncio.sleep(0.001)
    assert await cache.get(cache.ticket(SUBJECT, query(b"%d" % number))) == answer(number, 8000)


def _integrity(file: Path) -> str:
    database = sqlite3.connect(file)
    ((said,),) = database.execute("PRAGMA integrity_check").fetchall()
    database.close()
    return str(said)


def test_a_folder_that_others_can_write_is_refused(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await until(lambda: "changed by others" in cache.statistics().state)
        for _ in range(2):
            await ask(cache, query(b"x"))
        assert await ask(cache, query(b"x")) == answer(1)

    fill(file)
    file.parent.chmod(0o777)
    serve(file, work)
    file.parent.chmod(0o700)
    file.chmod(0o666)
    serve(file, work)
    with pytest.raises(CacheUnusable, match="changed by others"):
        inspection.look(file)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_stands_in_the_way(kind: str, file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await until(lambda: cache.statistics().errors > 0)
        assert cache.statistics().state.startswith("off: ")
        for _ in range(2):
            await ask(cache, query(b"x"))
        assert await ask(cache, query(b"x")) == answer(1)

    if kind == "file":
        file.parent.write_bytes(b"a file where the folder should be")
    else:
        file.parent.mkdir(mode=0o700)
    if kind == "folder":
        file.mkdir()
    if kind == "link":
        file.symlink_to("nowhere/at/all")
    serve(file, work)


def test_it_comes_back_when_the_way_is_free(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await until(lambda: cache.statistics().state.startswith("off: Not a"))
        file.parent.unlink()
        await works(cache)

    file.parent.write_bytes(b"")
    serve(file, work, pace=structs.replace(QUICK, retry_s=0.01))
