"""The whole cache as serving uses it: what is found, what is admitted, what lasts."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import aiosqlite
import pytest
from msgspec import structs

from edge_agent.cache import connection, entry, inspection, scripts
from edge_agent.cache.admission import PATIENCE
from edge_agent.cache.cache import ResultCache
from edge_agent.cache.database import CacheDatabase
from edge_agent.cache.tickets import INLINE_BYTES
from edge_agent.calls import Answer
from edge_agent.serve_config import CacheConfig

from .conftest import QUICK, SUBJECT, answer, ask, large, query, serve, until


async def ready(cache: ResultCache) -> None:
    await until(lambda: cache.statistics().state in ("ok", "rebuilt"))


def written(cache: ResultCache, count: int) -> asyncio.Future[None]:
    return asyncio.ensure_future(until(lambda: cache.statistics().entries >= count))


def test_a_small_input_is_found_at_once(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        timed = structs.replace(answer(3), timings_ms={"infer": 2.5})
        ticket = cache.ticket(SUBJECT, query(b"one"))
        assert await cache.get(ticket) is None
        cache.put(ticket, timed)
        assert await cache.get(cache.ticket(SUBJECT, query(b"one"))) == answer(3)
        assert await cache.get(cache.ticket(SUBJECT, query(b"two"))) is None
        found = cache.statistics()
        assert (found.hits, found.misses, found.puts) == (1, 2, 1)

    serve(file, work)


def test_what_there_is_is_not_counted_for_each_batch(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    measure = CacheDatabase._measure

    async def watched(database: CacheDatabase, writer: aiosqlite.Connection) -> None:
        counted.append(len(counted))
        await measure(database, writer)

    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for number in range(5):
            for _ in range(2):
                await ask(cache, query(b"%d" % number))
            await until(lambda: inspection.look(file).entries > number)  # noqa: B023 - awaited
        assert counted == [0]

    monkeypatch.setattr(CacheDatabase, "_measure", watched)
    serve(file, work, pace=structs.replace(QUICK, tick_s=1000, tidy_s=1000))


@pytest.mark.parametrize("size", [10_000, INLINE_BYTES + 1])
def test_a_large_input_is_hashed_when_it_comes_again(size: int, file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        first = cache.ticket(SUBJECT, query(bytes(size)))
        assert await cache.get(first) is None
        cache.put(first, answer(1))
        assert first.key is None
        assert await ask(cache, query(bytes(size))) is None
        assert await ask(cache, query(bytes(size))) == answer(1)
        assert cache.statistics().puts == 1

    serve(file, work)


def test_answers_last_beyond_the_process(file: Path) -> None:
    async def first(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, large(7))
            await ask(cache, query(b"small"))
        await written(cache, 2)

    async def second(cache: ResultCache) -> None:
        await ready(cache)
        assert await ask(cache, large(7)) == answer(1)
        assert await ask(cache, query(b"small")) == answer(1)
        assert cache.statistics().misses == 0
        await until(lambda: inspection.look(file).hits == 2)

    serve(file, first)
    serve(file, second)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_what_came_once_is_never_written(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for number in range(50):
            await ask(cache, large(number))
            await ask(cache, query(b"%d" % number))
        await ask(cache, query(b"0"))  # its answer was only in memory, and proves worth keeping
        await written(cache, 1)

    serve(file, work)
    assert inspection.look(file).entries == 1


def test_other_tenants_models_and_engines_find_nothing(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        others = [
            structs.replace(SUBJECT, tenant="uid:8"),
            structs.replace(SUBJECT, bundle="sha256:" + "f" * 64),
            structs.replace(SUBJECT, pipeline="sha256:" + "f" * 64),
            structs.replace(SUBJECT, origin=structs.replace(SUBJECT.origin, engine="tflite")),
        ]
        for _ in range(3):
            await ask(cache, query(b"x"))
        for other in others:
            assert await cache.get(cache.ticket(other, query(b"x"))) is None

    serve(file, work)


def test_unique_inputs_are_let_pass_when_samples_collide(file: Path) -> None:
    """Sensor data that changes only where no sample is taken."""

    async def work(cache: ResultCache) -> None:
        data = bytearray(64 * 1024)
        hashed = 0
        for number in range(4 * PATIENCE):
            data[5000:5004] = number.to_bytes(4, "little")
            ticket = cache.ticket(SUBJECT, query(bytes(data)))
            assert await cache.get(ticket) is None
            cache.put(ticket, answer(number))
            hashed += ticket.key is not None
        assert hashed <= PATIENCE + 4 * PATIENCE // 16
        assert cache.statistics().stepped_aside > 2 * PATIENCE
        for _ in range(40):
            await ask(cache, query(bytes(data)))
        assert await ask(cache, query(bytes(data))) is not None  # it found something: back again

    serve(file, work)


def test_an_answer_is_given_for_its_time_only(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, query(b"x"))
        await written(cache, 1)

    async def miss(cache: ResultCache) -> None:
        await ready(cache)
        assert await cache.get(cache.ticket(SUBJECT, query(b"x"))) is None

    async def memory_forgets_too(cache: ResultCache) -> None:
        ticket = cache.ticket(SUBJECT, query(b"y"))
        cache.put(ticket, answer(1))
        assert await cache.get(ticket) is not None
        monkeypatch.setattr(entry, "seconds_now", lambda: now + 202)
        assert await cache.get(ticket) is None

    config = CacheConfig(ttl_s=100)
    now = entry.seconds_now()
    serve(file, keep, config)
    for later in (-50, 101):
        monkeypatch.setattr(entry, "seconds_now", lambda later=later: now + later)
        serve(file, miss, config)
    serve(file, memory_forgets_too, config)
    assert inspection.look(file).entries == 0  # tidied up


def test_it_stays_below_its_limit_and_keeps_what_was_used(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for number in range(150):
            for asked in (query(b"%d" % number), query(b"favourite")):
                for _ in range(2):
                    ticket = cache.ticket(SUBJECT, asked)
                    if await cache.get(ticket) is None:
                        cache.put(ticket, answer(number, 20_000))
            if number % 10 == 9:
                await until(lambda: not cache._database or not cache._database.pending)
                assert file.stat().st_size <= 1 << 20
                assert connection.log_bytes(file) <= connection.MAX_LOG_BYTES
        await until(lambda: cache.statistics().evictions > 90)
        assert cache.statistics().errors == 0

    serve(file, work, CacheConfig(mib=1))
    assert file.stat().st_size <= 1 << 20
    kept = [one["size_bytes"] for one in inspection.entries(file)]
    assert 20 < len(kept) < 53
    check(file)


def test_a_lowered_limit_shrinks_the_file(file: Path) -> None:
    async def fill(cache: ResultCache) -> None:
        await ready(cache)
        for number in range(100):
            for _ in range(2):
                ticket = cache.ticket(SUBJECT, query(b"%d" % number))
                await cache.get(ticket)
                cache.put(ticket, answer(number, 40_000))
            await until(lambda: cache._database and not cache._database.pending)

    async def look(cache: ResultCache) -> None:
        await ready(cache)
        assert file.stat().st_size <= 1 << 20

    serve(file, fill)
    assert file.stat().st_size > 3 << 20
    serve(file, look, CacheConfig(mib=1))
    assert inspection.look(file).entries > 10
    check(file)


def test_clearing_beside_a_running_daemon(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, query(b"x"))
        await written(cache, 1)
        assert await asyncio.to_thread(inspection.clear, file) == 1
        await until(lambda: cache.statistics().memory_bytes == 0)
        assert await cache.get(cache.ticket(SUBJECT, query(b"x"))) is None
        assert cache.statistics().state == "ok"

    serve(file, work)


def test_the_daemon_forgets_what_it_has_and_what_it_was_about_to_write(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, query(b"x"))
        await written(cache, 1)
        for _ in range(2):
            await ask(cache, query(b"y"))
        await cache.clear()
        for data in (b"x", b"y"):
            assert await cache.get(cache.ticket(SUBJECT, query(data))) is None
        await ask(cache, query(b"z"))
        await ask(cache, query(b"z"))
        await until(lambda: inspection.look(file).entries == 1)

    serve(file, work)


@pytest.mark.parametrize("fault", ["none", "unexpected"])
def test_large_inputs_are_told_apart_without_a_database(
    file: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(database: CacheDatabase) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CacheDatabase, "run", fail)

    async def main() -> None:
        cache = ResultCache(file, CacheConfig(mib=0 if fault == "none" else 1))
        running = asyncio.create_task(cache.run())
        await asyncio.sleep(0)
        if fault == "unexpected":
            with pytest.raises(ZeroDivisionError):
                await running
            assert cache.statistics().state == "off: it failed unexpectedly"
            running = asyncio.create_task(cache.run())
            await asyncio.sleep(0)
        wide = query(bytes(INLINE_BYTES + 1))
        first = await cache.flights.enter(cache.ticket(SUBJECT, wide))
        assert await cache.flights.enter(cache.ticket(SUBJECT, wide)) is first
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(main())


def test_a_huge_answer_is_given_but_not_kept_on_the_disk(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        huge = answer(1, entry.MAX_ENTRY_BYTES)
        for _ in range(3):
            ticket = cache.ticket(SUBJECT, query(b"x"))
            if await cache.get(ticket) is None:
                cache.put(ticket, huge)
        assert await cache.get(cache.ticket(SUBJECT, query(b"x"))) == huge

    serve(file, work)
    assert inspection.look(file).entries == 0


def test_switched_off_it_finds_and_keeps_nothing(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        for _ in range(4):
            assert await ask(cache, query(b"x")) is None
            assert await ask(cache, large(1)) is None
        first = await cache.flights.enter(cache.ticket(SUBJECT, large(1)))
        assert await cache.flights.enter(cache.ticket(SUBJECT, large(1))) is first
        assert cache.statistics().state == "off: switched off"

    serve(file, work, CacheConfig(mib=0))
    assert not file.parent.exists()


def test_many_callers_at_once(file: Path) -> None:
    async def one(cache: ResultCache, number: int) -> Answer | None:
        ticket = cache.ticket(SUBJECT, large(number % 10))
        found = await cache.get(ticket)
        if found is None:
            cache.put(ticket, answer(number % 10))
        return found

    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(5):
            found = await asyncio.gather(*(one(cache, number) for number in range(200)))
            for number, got in enumerate(found):
                assert got in (None, answer(number % 10))
        assert cache.statistics().hits > 700

    serve(file, work)


def test_a_cancelled_lookup_harms_nothing(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, large(1))
        await written(cache, 1)
        cache._memory.clear()
        for _ in range(20):
            asking = asyncio.ensure_future(ask(cache, large(1)))
            await asyncio.sleep(0)
            asking.cancel()
        assert await ask(cache, large(1)) == answer(1)

    serve(file, work)


def test_a_lookup_that_takes_too_long_is_a_miss(file: Path) -> None:
    async def work(cache: ResultCache) -> None:
        await ready(cache)
        for _ in range(2):
            await ask(cache, large(1))
        await until(lambda: cache.statistics().entries == 1)
        cache._memory.clear()
        assert await ask(cache, large(1)) is None
        assert cache.statistics().state == "ok"

    serve(file, work, pace=structs.replace(QUICK, get_s=0))


def check(file: Path) -> None:
    """The database is whole, and without entries that have no answer or the reverse."""
    database = sqlite3.connect(file)
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    ids = "SELECT id FROM entries", "SELECT id FROM answers"
    entries, answers = (set(database.execute(sql).fetchall()) for sql in ids)
    assert entries == answers
    database.close()


def test_pages_and_notes_are_what_the_schema_says(file: Path) -> None:
    file.parent.mkdir(mode=0o700)
    opened = connection.open_database(file, 100)
    found = [opened.execute(f"PRAGMA {name}").fetchall()[0][0] for name in (
        "page_size", "auto_vacuum", "journal_mode", "synchronous", "user_version",
    )]  # fmt: skip
    opened.close()
    assert found == [scripts.PAGE_BYTES, 2, "wal", 1, scripts.SCHEMA_VERSION]
    assert not os.path.exists(f"{file}-wal")
