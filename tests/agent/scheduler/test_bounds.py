"""What is given up, too late or without a model, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from edge_agent.calls import Answer, InputTensor, Priority, Query
from edge_agent.errors import (
    DeadlineExceededError,
    ModelNotReadyError,
)
from edge_agent.scheduler.job import Job
from edge_agent.scheduler.limits import ModelQueueSettings

from .drive import BATCHES, PLAIN, Drive, assert_empty, give_up, limited, outcomes, settle, value

CRITICAL, HIGH, NORMAL, BULK = Priority


def test_a_caller_hears_at_its_deadline_while_no_worker_is_free() -> None:
    async def steps() -> None:
        drive = Drive()
        late, soon = await drive.ask(1, within_s=2.0), await drive.ask(2, within_s=1.0)
        drive.clock.pass_s(0.999)
        await settle()
        assert not soon.done()
        drive.clock.pass_s(0.001)
        assert [type(one) for one in await outcomes([soon])] == [DeadlineExceededError]
        assert not late.done()
        drive.clock.pass_s(1.0)
        assert [type(one) for one in await outcomes([late])] == [DeadlineExceededError]
        assert await drive.take() is None
        assert_empty(drive)

    asyncio.run(steps())


def test_a_caller_hears_at_its_deadline_while_its_job_runs_on() -> None:
    async def steps() -> None:
        drive = Drive()
        caller = await drive.ask(within_s=1.0)
        batch = await drive.take()
        assert batch is not None
        drive.clock.pass_s(1.0)
        assert [type(one) for one in await outcomes([caller])] == [DeadlineExceededError]
        await drive.run(batch, 1.0)
        assert_empty(drive)

    asyncio.run(steps())


def test_a_job_is_refused_whose_deadline_has_passed() -> None:
    async def steps() -> None:
        drive = Drive()
        caller = await drive.ask(within_s=0.0)
        assert [type(one) for one in await outcomes([caller])] == [DeadlineExceededError]

    asyncio.run(steps())


def test_what_is_late_for_certain_is_not_run() -> None:
    async def steps() -> None:
        drive = Drive()
        for run_s in (0.1, 0.2, 0.3):
            await drive.ask()
            await drive.order(run_s)
        hopeless, possible = await drive.ask(1, within_s=0.09), await drive.ask(2, within_s=0.11)
        assert await drive.order() == [2]
        assert [type(one) for one in await outcomes([hopeless])] == [DeadlineExceededError]
        await possible
        drive.clock.pass_s(5.0)
        stale = await drive.ask(3, within_s=0.09)
        assert await drive.order() == [3]
        await stale
        assert_empty(drive)

    asyncio.run(steps())


def test_what_is_late_most_likely_gives_way_to_others_of_its_tenant() -> None:
    async def steps() -> None:
        drive = Drive()
        for run_s in (0.1, 0.12, 0.14):
            await drive.ask()
            await drive.order(run_s)
        late, last = await drive.ask(1, within_s=0.11), await drive.ask(2, within_s=0.11)
        other = await drive.ask(3, tenant="u", within_s=0.11)
        assert await drive.order() == [2, 3]
        assert [type(one) for one in await outcomes([late])] == [DeadlineExceededError]
        await asyncio.gather(last, other)
        assert_empty(drive)

    asyncio.run(steps())


@pytest.mark.parametrize("slow_s", [[60.0], [1.0] * 4])
def test_a_few_runs_that_took_very_long_make_nothing_late(slow_s: list[float]) -> None:
    async def steps() -> None:
        drive = Drive()
        for run_s in (*[0.1] * 20, *slow_s):
            await drive.ask()
            await drive.order(run_s)
        callers = [await drive.ask(number, within_s=0.101) for number in (1, 2, 3)]
        assert await drive.order() == [1, 2, 3]
        await asyncio.gather(*callers)

    asyncio.run(steps())


def test_a_job_that_is_given_up_is_not_run() -> None:
    async def steps() -> None:
        drive = Drive()
        callers = [await drive.ask(number) for number in range(3)]
        callers[1].cancel()
        assert await drive.order() == [0, 2]
        await give_up(drive, callers)

    asyncio.run(steps())


def test_a_job_is_not_run_that_is_given_up_in_the_moment_of_its_turn() -> None:
    async def steps() -> None:
        drive = Drive()
        caller = await drive.ask(1)
        worker = asyncio.create_task(drive.scheduler.next_batch({"a"}, {NORMAL}))
        caller.cancel()
        await settle()
        assert caller.cancelled()
        assert not worker.done()
        worker.cancel()
        await asyncio.wait([worker])
        assert_empty(drive)

    asyncio.run(steps())


def test_a_storm_of_callers_that_give_up_leaves_nothing() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=20_000), BATCHES)
        callers = [
            asyncio.create_task(
                drive.scheduler.submit(
                    Job(
                        "a",
                        Query("labels", (InputTensor("x", "uint8", (1, 1), bytes(2)),)),
                        f"tenant {number % 50}",
                        Priority(number % 4),
                        drive.clock.now + 10 + number % 7,
                    )
                )
            )
            for number in range(10_000)
        ]
        await settle()
        assert drive.waiting() == 10_000
        running = await drive.take()
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        assert_empty(drive)
        assert running is not None
        await drive.run(running)
        assert all(one.cancelled() for one in callers)
        assert await drive.take() is None

    asyncio.run(steps())


def test_deadlines_of_answered_jobs_dont_pile_up() -> None:
    async def steps() -> None:
        drive = Drive()
        waiting = await drive.ask(priority=BULK)
        for _ in range(500):
            caller = await drive.ask()
            await drive.order(most=1)
            await caller
        assert len(drive.scheduler._deadlines) < 100
        await give_up(drive, [waiting])

    asyncio.run(steps())


class Tracked(bytearray):
    """Bytes that can be watched going away."""


class TrackedAnswer(Answer, frozen=True, weakref=True):
    """An answer that can be watched going away."""


def test_queries_and_answers_are_let_go_of() -> None:
    async def steps() -> None:
        drive = Drive()
        waiting = await drive.ask(priority=BULK)
        data, reply = Tracked(8), TrackedAnswer()
        gone: list[weakref.ref[object]] = [weakref.ref(data), weakref.ref(reply)]
        query = Query("labels", (InputTensor("x", "uint8", (8,), data),))
        job = Job("a", query, "t", NORMAL, drive.clock.now + 100)
        caller = asyncio.create_task(drive.scheduler.submit(job))
        batch = await drive.take()
        assert batch is not None
        batch.done([reply])
        assert (await caller).answer is reply
        del data, reply, query, job, caller, batch
        await settle()
        gc.collect()
        assert [one() for one in gone] == [None, None]
        await give_up(drive, [waiting])

    asyncio.run(steps())


def test_a_removed_model_refuses_what_waits_and_finishes_what_runs() -> None:
    async def steps() -> None:
        drive = Drive()
        callers = [await drive.ask(number) for number in range(3)]
        batch = await drive.take()
        assert batch is not None
        drained = asyncio.create_task(drive.scheduler.drained("a"))
        drive.scheduler.remove_model("a")
        waiting = await outcomes(callers[1:])
        assert [type(one) for one in waiting] == [ModelNotReadyError] * 2
        refused = await drive.ask()
        assert [type(one) for one in await outcomes([refused])] == [ModelNotReadyError]
        assert not drained.done()
        await drive.run(batch)
        await drained
        assert (await callers[0]).answer.timings_ms["value"] == value(batch.queries[0])
        assert {digest for digest, _, _ in drive.scheduler.waiting()} == {"b"}
        with pytest.raises(ModelNotReadyError):
            drive.scheduler.update_model("a", ModelQueueSettings(1.0))

    asyncio.run(steps())


def test_a_model_that_comes_back_before_it_is_gone_takes_jobs() -> None:
    async def steps() -> None:
        drive = Drive()
        callers = [await drive.ask(1)]
        batch = await drive.take()
        assert batch is not None
        drive.scheduler.remove_model("a")
        drive.scheduler.add_model("a", PLAIN)
        callers.append(await drive.ask(2))
        await drive.run(batch)
        assert await drive.order() == [2]
        await asyncio.gather(*callers)
        await drive.scheduler.drained("a")
        assert_empty(drive)

    asyncio.run(steps())


def test_drained_waits_for_what_waits_and_what_runs() -> None:
    async def steps() -> None:
        drive = Drive()
        caller = await drive.ask()
        drained = asyncio.create_task(drive.scheduler.drained("a"))
        batch = await drive.take()
        assert batch is not None
        await settle()
        assert not drained.done()
        await drive.run(batch)
        await asyncio.gather(drained, caller, drive.scheduler.drained("unknown"))

    asyncio.run(steps())


def test_what_is_expected_of_a_model_counts_until_runs_were_measured() -> None:
    async def steps() -> list[float]:
        drive = Drive()
        expected = []

        def times() -> float:
            return drive.scheduler._models["a"].times.mean_s * 1000

        for run_ms in (40.0, 50.0):
            drive.scheduler.update_model("a", ModelQueueSettings(run_ms))
            expected.append(times())
            caller = await drive.ask()
            await drive.order(0.030)
            await caller
            expected.append(times())
        return expected

    assert asyncio.run(steps()) == pytest.approx([40, 30, 30, 30])
