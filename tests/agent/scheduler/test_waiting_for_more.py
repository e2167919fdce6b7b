"""How long a free worker waits for more rows."""

from __future__ import annotations

import asyncio

import pytest

from edge_agent.calls import Priority
from edge_agent.workers.work import Batch

from .drive import BATCHES, Caller, Drive, answer, finish, limited, settle, told, values

CRITICAL, HIGH, NORMAL, BULK = Priority


async def four_callers(drive: Drive, fixed_s: float = 0.020, row_s: float = 0.001) -> None:
    """Has four callers ask again and again, so that it is known that there are four.

    Args:
        drive: The scheduler.
        fixed_s: What a run takes, and is saved by running together.
        row_s: What each row takes beside that.
    """
    callers: list[Caller] = []
    for _ in range(60):
        for number in range(4):
            drive.clock.pass_s(0.0002)
            callers.append(await drive.ask(number))
        while (batch := await drive.take()) is not None:
            await drive.run(batch, fixed_s + row_s * len(batch.queries))
        drive.clock.pass_s(0.006)
        await drive.order(fixed_s + row_s)
    await asyncio.gather(*callers)


async def waiting_worker(drive: Drive) -> asyncio.Task[Batch]:
    worker = asyncio.create_task(drive.scheduler.next_batch({"a", "b"}, set(Priority)))
    await settle()
    return worker


def test_a_lone_caller_never_waits() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        for pause_s in (0.0, 0.0001, 0.001, 0.01, 0.1) * 10:
            caller = await drive.ask()
            batch = await drive.take()
            assert values(batch) == [0]
            assert batch is not None
            await drive.run(batch, 0.02)
            await caller
            drive.clock.pass_s(pause_s)

    asyncio.run(steps())


def test_a_free_worker_waits_for_the_callers_that_are_missing_and_no_longer() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        await four_callers(drive)
        worker = await waiting_worker(drive)
        callers = []
        for number in range(3):
            drive.clock.pass_s(0.0002)
            callers.append(await drive.ask(number))
            assert not worker.done()
        callers.append(await drive.ask(3))
        assert values(worker.result()) == [0, 1, 2, 3]
        await drive.run(worker.result())
        await asyncio.gather(*callers)

    asyncio.run(steps())


def test_a_free_worker_waits_no_longer_than_allowed_for_who_does_not_come() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_batch_wait_s=0.01), BATCHES)
        await four_callers(drive)
        worker = await waiting_worker(drive)
        caller = await drive.ask()
        asked_at = drive.clock.now
        assert not worker.done()
        drive.clock.pass_s(0.0101)
        await settle()
        assert values(worker.result()) == [0]
        await drive.run(worker.result())
        assert (await caller).queue_ms <= 10.2
        assert drive.clock.now - asked_at <= 0.0102

    asyncio.run(steps())


def test_no_deadline_is_missed_by_waiting_for_more() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_batch_wait_s=1.0), BATCHES)
        await four_callers(drive)
        worker = await waiting_worker(drive)
        caller = await drive.ask(within_s=0.0245)
        drive.clock.pass_s(0.003)
        await settle()
        await drive.run(worker.result(), 0.021)
        await caller

    asyncio.run(steps())


def test_nobody_waits_where_running_together_saves_nothing() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        await four_callers(drive, fixed_s=0.0, row_s=0.020)
        caller = await drive.ask()
        assert await drive.order() == [0]
        await caller

    asyncio.run(steps())


def test_other_work_of_the_same_class_is_done_while_one_waits() -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        await four_callers(drive)
        worker = await waiting_worker(drive)
        callers = [await drive.ask(0)]
        assert not worker.done()
        callers.append(await drive.ask(1, model="b"))
        assert values(worker.result()) == [1]
        told(worker.result(), answer)
        drive.clock.pass_s(0.1)
        await finish(drive, callers)

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("priority", "first"), [(HIGH, 1), (CRITICAL, 1), (BULK, 0)], ids=["high", "critical", "bulk"]
)
def test_who_waits_for_more_holds_up_nobody_urgent_and_lets_nobody_less_urgent_by(
    priority: Priority, first: int
) -> None:
    async def steps() -> None:
        drive = Drive(settings=BATCHES)
        await four_callers(drive)
        callers = [await drive.ask(0), await drive.ask(1, model="b", priority=priority)]
        batch = await drive.take()
        assert values(batch) == [first]
        told(batch, answer)
        drive.clock.pass_s(0.1)
        await finish(drive, callers)

    asyncio.run(steps())
