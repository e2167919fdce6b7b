"""A scheduler on a clock that only the test moves, its callers and its workers."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Container, Sequence
from typing import Any, TypeAlias

from msgspec import structs

from edge_agent.calls import Answer, InputTensor, Priority, Query
from edge_agent.scheduler.job import Job, Ran
from edge_agent.scheduler.limits import ModelQueueSettings, SchedulerLimits, limits_of
from edge_agent.scheduler.scheduler import Scheduler
from edge_agent.serve_config import ServeConfig
from edge_agent.workers.work import Batch, Outcome

Caller: TypeAlias = "asyncio.Task[Ran]"
ALL = frozenset(Priority)
PLAIN = ModelQueueSettings(run_ms=10.0)
BATCHES = ModelQueueSettings(run_ms=10.0, batches=True)


def limited(**changed: Any) -> SchedulerLimits:
    """The usual limits, but for some."""
    return structs.replace(limits_of(ServeConfig()), **changed)


class _Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """Time that stands still until it is moved; timers go off on the way."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._numbers = itertools.count()

    def __call__(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def pass_s(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            when, _, timer = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if timer.callback is not None:
                timer.callback()
        self.now = until


def query(value: int = 0, rows: int = 1, width: int = 2) -> Query:
    """A query that can be told from others by its value."""
    data = bytes([value % 256, value // 256]) * (rows * width)
    return Query("labels", (InputTensor("x", "uint8", (rows, width, 2), data),))


def answer(to: Query) -> Answer:
    """The one right answer to a query."""
    return Answer(timings_ms={"value": float(value(to))})


def value(of: Query) -> int:
    data = of.tensors[0].data
    return int(data[0]) + 256 * int(data[1])


class Drive:
    """One scheduler with the models ``a`` and ``b``, which take 10 ms."""

    def __init__(self, limits: SchedulerLimits | None = None, settings: ModelQueueSettings = PLAIN):
        self.clock = Clock()
        self.scheduler = Scheduler(limits or limited(), self.clock, self.clock.call_at)
        for name in ("a", "b"):
            self.scheduler.add_model(name, settings)

    async def ask(
        self,
        value: int = 0,
        *,
        model: str = "a",
        tenant: str = "t",
        priority: Priority = Priority.NORMAL,
        within_s: float = 1000.0,
        rows: int = 1,
        width: int = 2,
    ) -> Caller:
        """Submits a job; it waits when this returns, unless it was refused."""
        job = Job(model, query(value, rows, width), tenant, priority, self.clock.now + within_s)
        caller = asyncio.create_task(self.scheduler.submit(job))
        await settle()
        return caller

    async def take(
        self, models: Container[str] = ("a", "b"), classes: Container[Priority] = ALL
    ) -> Batch | None:
        """What a worker gets that asks now."""
        worker = asyncio.create_task(self.scheduler.next_batch(models, classes))
        await settle()
        if worker.done():
            return worker.result()
        worker.cancel()
        await asyncio.wait([worker])
        return None

    async def run(self, batch: Batch, seconds: float = 0.0) -> None:
        """Answers a batch after some time."""
        self.clock.pass_s(seconds)
        batch.done([answer(one) for one in batch.queries])
        await settle()

    async def order(self, run_s: float = 0.0, most: int = 10_000) -> list[int]:
        """Runs what waits, and returns the values in the order in which they ran."""
        ran: list[int] = []
        while len(ran) < most and (batch := await self.take()) is not None:
            ran += map(value, batch.queries)
            await self.run(batch, run_s)
        return ran

    def waiting(self) -> int:
        return sum(depth for _, _, depth in self.scheduler.waiting())


async def settle() -> None:
    """Lets every task go as far as it can."""
    for _ in range(6):
        await asyncio.sleep(0)


async def outcomes(callers: Sequence[Caller]) -> list[Ran | BaseException]:
    """What became of callers, each of which must be done."""
    await settle()
    assert all(one.done() for one in callers)
    return await asyncio.gather(*callers, return_exceptions=True)


def told(batch: Batch | None, outcome: Callable[[Query], Outcome]) -> None:
    """Gives each query of a batch its outcome."""
    assert batch is not None
    batch.done([outcome(one) for one in batch.queries])


def values(batch: Batch | None) -> list[int]:
    return [] if batch is None else [value(one) for one in batch.queries]


async def finish(drive: Drive, callers: list[Caller]) -> None:
    await drive.order()
    await asyncio.gather(*callers)


async def give_up(drive: Drive, callers: list[Caller]) -> None:
    """Ends a test: no caller waits, nothing is left."""
    for one in callers:
        one.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    assert_empty(drive)


def assert_empty(drive: Drive) -> None:
    """Holds the scheduler to nothing that it doesn't need: no jobs, no bytes, no deadlines."""
    assert drive.waiting() == 0
    assert drive.scheduler._admission.size == 0
    assert len(drive.scheduler._deadlines) == 0
    assert drive.scheduler._admission._held == {}
