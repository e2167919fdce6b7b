"""One call: from the cache, from the queue, from another's run; in time, and counted once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from edge_agent.calls import Priority
from edge_agent.errors import (
    BadInputError,
    DeadlineExceededError,
    ModelNotFoundError,
    ModelNotReadyError,
    OverloadedError,
    WorkerFailedError,
)
from edge_agent.serve_config import ServeConfig
from edge_agent.telemetry.metrics import registry, render

from .scene import Scene, play, until, who

A1 = "sha256:acme/a@1.0.0"


def rendered(s: Scene) -> list[str]:
    return render(registry(s.meter)).decode().splitlines()


def test_what_was_asked_before_comes_from_the_cache(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        replies = [await s.ask(7) for _ in range(3)]
        assert [reply.is_cached for reply in replies] == [False, True, True]
        assert {who(reply) for reply in replies} == {A1}
        assert len(s.pools[0].batches) == 1
        counted = entry.statistics
        assert (counted.execution_count, counted.success.count) == (1, 3)
        assert (counted.cache_hit.count, counted.cache_miss.count) == (2, 1)

    play(tmp_path, act, mib=1)


def test_another_version_never_answers_from_the_cache_of_the_first(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0", "1.0.0"):
            await s.serve(version)
            for _ in range(3):
                assert who(await s.ask(7)) == f"sha256:acme/a@{version}"

    play(tmp_path, act, mib=1)


def test_equal_calls_in_the_air_share_one_run(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        calls = [s.asking(7) for _ in range(5)]
        other = s.asking(8)
        await until(lambda: pool.batches)
        pool.running.set()
        replies = await asyncio.gather(*calls)
        assert sorted(reply.is_cached for reply in replies) == [False, True, True, True, True]
        assert not (await other).is_cached
        assert entry.statistics.execution_count == len(pool.batches) == 2

    play(tmp_path, act)


def test_who_counted_the_bytes_of_a_query_is_told_when_a_queue_does(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        told: list[int] = []
        pool = await s.running()
        leader, follower = (s.asking(7, on_queued=lambda n=n: told.append(n)) for n in (1, 2))
        await until(lambda: pool.batches)
        assert told == [1]  # the other one's stay with whoever counts them
        pool.running.set()
        await asyncio.gather(leader, follower)

    play(tmp_path, act)


def test_only_what_was_looked_up_is_missed_in_the_cache(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        for _ in range(2):
            await s.ask(7)
        assert (entry.statistics.cache_miss.count, entry.statistics.success.count) == (0, 2)

    play(tmp_path, act)


def test_what_is_urgent_does_not_wait_for_what_is_not(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        busy = s.asking(1)
        await until(lambda: pool.batches)
        bulk = [s.asking(7, priority=Priority.BULK) for _ in range(2)]
        await until(lambda: s.waiting() == 1)
        critical = [s.asking(7, priority=Priority.CRITICAL) for _ in range(2)]
        await until(lambda: s.waiting() == 2)
        high = s.asking(7, priority=Priority.HIGH)
        await asyncio.sleep(0)
        pool.running.set()
        await asyncio.gather(busy, high, *critical, *bulk)
        assert len(pool.batches) == 3
        assert [one.result().is_cached for one in bulk] == [False, True]
        assert [one.result().is_cached for one in (*critical, high)] == [False, True, True]

    play(tmp_path, act)


def test_who_joined_gets_an_error_of_its_own(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        calls = [s.asking(7) for _ in range(3)]
        await until(lambda: pool.batches)
        pool.failure = WorkerFailedError("died")
        pool.running.set()
        await asyncio.wait(calls)
        errors = [one.exception() for one in calls]
        assert [str(one) for one in errors] == ["died"] * 3
        assert len(set(map(id, errors))) == 3

    play(tmp_path, act)


def test_who_goes_away_is_counted(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        call = s.asking()
        await until(lambda: pool.batches)
        call.cancel()
        await asyncio.wait({call})
        assert entry.statistics.fail.count == 1
        (counted,) = [one for one in rendered(s) if 'reason="cancelled"' in one]
        assert counted.endswith(" 1.0")
        pool.running.set()

    play(tmp_path, act)


def test_what_was_forgotten_is_not_given_again(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        began = s.asking(7)
        await until(lambda: pool.batches)
        pool.running.set()
        await s.answering.forget()
        await began  # what ran beside what isn't trusted isn't kept either
        assert not (await s.ask(7)).is_cached
        await s.ask(8, idempotency_key="k")
        await s.answering.forget()
        assert not (await s.ask(8, idempotency_key="k")).is_cached

    play(tmp_path, act, mib=1)


def test_who_joins_keeps_its_own_deadline_and_the_rest_goes_on(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        first = s.asking(7)
        await until(lambda: pool.batches)
        with pytest.raises(DeadlineExceededError):
            await s.ask(7, deadline=monotonic() + 0.02)
        pool.running.set()
        assert who(await first) == A1

    play(tmp_path, act)


def test_who_joined_goes_on_when_the_first_goes_away(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        busy = s.asking(1)
        await until(lambda: pool.batches)
        first = s.asking(7)
        second = s.asking(7)
        await until(lambda: pool.batches)
        first.cancel()
        pool.running.set()
        assert who(await second) == A1
        assert who(await busy) == A1

    play(tmp_path, act)


def test_a_call_that_is_sent_again_is_executed_once(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        told = [await s.ask(7, idempotency_key="k") for _ in range(3)]
        assert {who(reply) for reply in told} == {A1}
        assert entry.statistics.execution_count == len(s.pools[0].batches) == 1
        with pytest.raises(BadInputError, match="another query"):
            await s.ask(8, idempotency_key="k")
        await s.ask(8, idempotency_key="k", tenant="other")
        assert len(s.pools[0].batches) == 2
        with pytest.raises(BadInputError, match="another query"):
            await s.ask(7, idempotency_key="k", version="1.0.0")

    play(tmp_path, act)


@pytest.mark.parametrize("meanwhile", ["switched", "rested"])
def test_a_retry_gets_the_reply_of_the_first_time_whatever_happened(
    tmp_path: Path, meanwhile: str
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.ask(7, idempotency_key="k")
        if meanwhile == "switched":
            await s.serve("2.0.0")
        else:
            await s.life_cycle.rest(entry, "it rests")
        assert who(await s.ask(7, idempotency_key="k")) == A1

    play(tmp_path, act)


def test_a_key_may_be_used_while_its_model_is_loaded_first(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve(name="acme/b")
        s.pools[0].loading.clear()
        loading = asyncio.create_task(s.serve())
        await until(lambda: A1 in s.pools[0].loads)
        first = s.asking(7, idempotency_key="k")
        await until(lambda: s.registry.find("acme/a", None).is_used)
        s.pools[0].loading.set()
        await loading
        assert who(await first) == who(await s.ask(7, idempotency_key="k")) == A1

    play(tmp_path, act)


def test_a_call_follows_its_model_to_other_workers(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.serve(name="acme/b")
        pool = await s.running()
        busy = s.asking(name="acme/b")
        await until(lambda: pool.batches)
        waiting = [s.asking(number) for number in range(3)]
        await until(lambda: s.waiting())
        s.placement.isolate("acme/a")
        await s.life_cycle.fail(entry, "it moves", wakes=True)
        assert {who(reply) for reply in await asyncio.gather(*waiting)} == {A1}
        assert [one.kind.owner for one in s.pools] == [None, "acme/a"]
        assert len(s.pools[1].batches) == 3
        pool.running.set()
        await busy

    play(tmp_path, act)


def test_what_is_not_there_or_not_ready(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        with pytest.raises(ModelNotFoundError):
            await s.ask()
        entry = await s.serve()
        await s.life_cycle.fail(entry, "it broke")
        with pytest.raises(ModelNotReadyError, match="it broke"):
            await s.ask()
        assert entry.statistics.fail.count == 1

    play(tmp_path, act)


def test_what_is_too_late_is_not_run(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        busy = s.asking(1)
        await until(lambda: pool.batches)
        with pytest.raises(DeadlineExceededError):
            await s.ask(2, deadline=monotonic() + 0.02)
        pool.running.set()
        await busy
        assert len(pool.batches) == entry.statistics.execution_count == 1

    play(tmp_path, act)


def test_a_full_queue_refuses(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.config = ServeConfig(max_queued=2)
        await s.serve()
        pool = await s.running()
        calls = [s.asking(0)]
        await until(lambda: pool.batches)
        calls += [s.asking(number) for number in range(1, 6)]
        await until(lambda: sum(one.done() for one in calls) == 3)
        assert all(isinstance(one.exception(), OverloadedError) for one in calls if one.done())
        pool.running.set()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(not isinstance(one, OverloadedError) for one in outcomes) == 3

    play(tmp_path, act)


def test_deadlines_are_the_calls_the_models_or_the_configured(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.config = ServeConfig(default_deadline_ms=20)
        await s.serve()
        pool = await s.running()
        busy = s.asking(1)
        await until(lambda: pool.batches)
        with pytest.raises(DeadlineExceededError):
            await s.ask(2, deadline=None)
        assert not busy.done()
        pool.running.set()
        await busy

    play(tmp_path, act)
