"""Who runs together, and what a failed batch does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edge_agent.calls import Answer, Priority, Query
from edge_agent.errors import (
    BadInputError,
    DeadlineExceededError,
    EngineFailedError,
    ModelNotReadyError,
    WorkerFailedError,
)
from edge_agent.scheduler.job import Job
from edge_agent.scheduler.limits import ModelQueueSettings
from edge_agent.workers.work import Outcome

from .drive import BATCHES, Drive, answer, finish, limited, outcomes, settle, told, value, values

CRITICAL, HIGH, NORMAL, BULK = Priority


def test_a_batch_is_filled_from_tenants_in_turn_and_then_from_other_classes() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_batch=6), BATCHES)
        callers = [await drive.ask(number, tenant="x") for number in range(4)]
        callers += [await drive.ask(10 + number, tenant="y") for number in range(2)]
        callers += [await drive.ask(20, priority=BULK), await drive.ask(21, priority=BULK)]
        callers += [await drive.ask(30, width=3)]
        batch = await drive.take()
        assert values(batch) == [0, 10, 1, 11, 2, 3]
        assert values(await drive.take(classes={NORMAL})) == [30]
        assert values(await drive.take()) == [20, 21]
        assert batch is not None
        await drive.run(batch)
        ran = await callers[0]
        assert (ran.batch_size, ran.answer.timings_ms["value"]) == (6, 0)
        await asyncio.gather(*callers[:6])
        for one in callers[6:]:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    asyncio.run(steps())


def test_a_worker_of_one_class_gets_no_other_into_its_batch() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        callers = [await drive.ask(0, priority=CRITICAL), await drive.ask(1, priority=BULK)]
        batch = await drive.take(classes={CRITICAL})
        assert values(batch) == [0]
        told(batch, answer)
        await finish(drive, callers)

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("rows", "batches"),
    [
        ([1] * 5, [[0, 1, 2, 3], [4]]),
        ([3, 3], [[0], [1]]),
        ([1, 3, 1], [[0, 1], [2]]),
        ([9, 1], [[0], [1]]),
    ],
)
def test_a_batch_has_no_more_rows_than_allowed(rows: list[int], batches: list[list[int]]) -> None:
    async def steps() -> None:
        drive = Drive(settings=ModelQueueSettings(10.0, batches=True, max_batch=4))
        callers = [await drive.ask(number, rows=one) for number, one in enumerate(rows)]
        for expected in batches:
            batch = await drive.take()
            assert values(batch) == expected
            told(batch, answer)
        await finish(drive, callers)

    asyncio.run(steps())


def test_a_model_that_does_not_batch_runs_one_query_at_a_time() -> None:
    async def steps() -> None:
        drive = Drive()
        callers = [await drive.ask(number) for number in range(2)]
        batch = await drive.take()
        assert values(batch) == [0]
        told(batch, answer)
        await finish(drive, callers)

    asyncio.run(steps())


def test_more_rows_dont_make_anybody_late() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        callers = [await drive.ask(0, within_s=0.025)]
        callers += [await drive.ask(number) for number in range(1, 4)]
        batch = await drive.take()
        assert values(batch) == [0, 1]
        told(batch, answer)
        await finish(drive, callers)

    asyncio.run(steps())


def poisoned(query: Query) -> Outcome:
    return BadInputError("no") if value(query) == 1 else answer(query)


def test_each_caller_gets_its_own_outcome() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        callers = [await drive.ask(number) for number in range(3)]
        told(await drive.take(), poisoned)
        first, second, third = await outcomes(callers)
        assert not isinstance(first, BaseException)
        assert not isinstance(third, BaseException)
        assert isinstance(second, BadInputError)
        assert [one.answer.timings_ms["value"] for one in (first, third)] == [0, 2]

    asyncio.run(steps())


@pytest.mark.parametrize("error", [WorkerFailedError, EngineFailedError])
def test_jobs_of_a_failed_batch_run_again_alone(error: Callable[[str], Outcome]) -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        callers = [await drive.ask(number) for number in range(3)]
        told(await drive.take(), lambda _: error("died"))
        later = await drive.ask(3)
        await settle()
        for number in range(3):
            batch = await drive.take()
            assert values(batch) == [number]
            told(batch, lambda one: error("died") if value(one) == 1 else answer(one))
        told(await drive.take(), answer)
        first, second, *rest = await outcomes([*callers, later])
        assert isinstance(second, type(error("")))
        assert not any(isinstance(one, BaseException) for one in (first, *rest))
        assert drive.waiting() == 0

    asyncio.run(steps())


def test_a_job_that_kills_its_worker_alone_has_failed() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        caller = await drive.ask()
        told(await drive.take(), lambda _: WorkerFailedError("died"))
        assert [type(one) for one in await outcomes([caller])] == [WorkerFailedError]
        assert await drive.take() is None

    asyncio.run(steps())


def test_a_failed_batch_does_not_come_back_for_who_is_late_or_gone_or_has_no_model() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        late, gone = await drive.ask(0, within_s=1.0), await drive.ask(1)
        homeless = await drive.ask(2)
        batch = await drive.take()
        assert values(batch) == [0, 1, 2]
        gone.cancel()
        drive.clock.pass_s(1.0)
        drive.scheduler.remove_model("a")
        told(batch, lambda _: WorkerFailedError("died"))
        await asyncio.wait([gone])
        kinds = [type(one) for one in await outcomes([late, homeless])]
        assert kinds == [DeadlineExceededError, ModelNotReadyError]
        assert drive.waiting() == 0
        await drive.scheduler.drained("a")

    asyncio.run(steps())


def test_outcomes_that_cant_be_told_apart_count_as_a_failure() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        callers = [await drive.ask(number) for number in range(2)]
        batch = await drive.take()
        assert batch is not None
        batch.done([answer(batch.queries[0])])
        batch.done([answer(one) for one in batch.queries])
        assert await drive.order() == [0, 1]
        ran = await asyncio.gather(*callers)
        assert [one.batch_size for one in ran] == [1, 1]

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("run_ms", "rows", "timeout_s"),
    [(4.0, 1, 1.0), (100.0, 1, 2.0), (100.0, 3, 6.0), (900.0, 1, 10.0), (0.0, 1, 10.0)],
)
def test_a_run_hangs_by_what_was_measured(run_ms: float, rows: int, timeout_s: float) -> None:
    async def steps() -> None:
        drive = Drive(limited(max_run_s=10.0), ModelQueueSettings(run_ms))
        caller = await drive.ask(rows=rows, within_s=0.5)
        batch = await drive.take()
        assert batch is not None
        assert batch.timeout_s == pytest.approx(timeout_s)
        await drive.run(batch)
        await caller

    asyncio.run(steps())


def test_where_sizes_vary_one_run_says_nothing_of_the_next() -> None:
    async def steps() -> None:
        varied = ModelQueueSettings(100.0, sizes_vary=True)
        drive = Drive(limited(max_run_s=7.0), varied)
        first = await drive.ask(0)
        batch = await drive.take()
        assert batch is not None
        assert batch.timeout_s == 7.0
        await drive.run(batch, 0.1)
        await first
        small = await drive.ask(1, within_s=0.001)  # much less than the first one took
        batch = await drive.take()
        assert batch is not None
        await drive.run(batch)
        await small

    asyncio.run(steps())


def test_images_may_take_as_long_as_any_run() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_run_s=7.0))
        job = Job("a", Query("labels", images=(b"png",)), "t", NORMAL, drive.clock.now + 1)
        caller = asyncio.create_task(drive.scheduler.submit(job))
        batch = await drive.take()
        assert batch is not None
        assert batch.timeout_s == 7.0
        batch.done([Answer()])
        await caller

    asyncio.run(steps())
