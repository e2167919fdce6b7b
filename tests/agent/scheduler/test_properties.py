"""Whatever callers, workers and time do: no job is lost, none is answered twice."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.calls import Priority, Query
from edge_agent.errors import (
    BadInputError,
    DeadlineExceededError,
    ModelNotReadyError,
    OverloadedError,
    WorkerFailedError,
)
from edge_agent.scheduler.job import Ran
from edge_agent.scheduler.limits import ModelQueueSettings, TenantLimits
from edge_agent.workers.work import Batch, Outcome

from .drive import BATCHES, Caller, Drive, answer, limited, settle, value

_ASK = st.tuples(
    st.just("ask"),
    st.sampled_from("ab"),
    st.sampled_from("xyz"),
    st.sampled_from(Priority),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([0.01, 0.5, 3.0, 100.0]),
)
_STEPS = st.lists(
    st.one_of(
        _ASK,
        _ASK,
        _ASK,
        st.tuples(st.just("take")),
        st.tuples(st.just("take")),
        st.tuples(st.just("finish"), st.sampled_from(["fine", "poison", "crash"])),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
        st.tuples(st.just("pass"), st.sampled_from([0.0002, 0.006, 0.2, 2.5])),
        st.tuples(st.just("remove")),
    ),
    max_size=40,
)


class World:
    """Follows every job from its caller to its outcome."""

    def __init__(self) -> None:
        limits = limited(
            max_queued=5,
            max_batch=4,
            max_queued_bytes=60,
            tenants={"x": TenantLimits(weight=3.0), "z": TenantLimits(max_queued=4)},
        )
        self.drive = Drive(limits, BATCHES)
        self.callers: dict[int, Caller] = {}
        self.lines: dict[int, tuple[Any, ...]] = {}
        self.runs: Counter[int] = Counter()
        self.answers: Counter[int] = Counter()
        self.first_runs: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        self.batches: list[Batch] = []

    async def step(self, kind: str, *arguments: Any) -> None:
        if kind == "ask":
            await self.ask(*arguments)
        elif kind == "take":
            self.taken(await self.drive.take())
        elif kind == "finish" and self.batches:
            self.finish(self.batches.pop(0), *arguments)
        elif kind == "cancel" and arguments[0] in self.callers:
            self.callers[arguments[0]].cancel()
        elif kind == "pass":
            self.drive.clock.pass_s(*arguments)
        elif kind == "remove":
            self.drive.scheduler.remove_model("b")
            await settle()
            self.drive.scheduler.add_model("b", ModelQueueSettings(5.0))

    async def ask(
        self, model: str, tenant: str, priority: Priority, width: int, rows: int, within_s: float
    ) -> None:
        number = len(self.callers)
        self.lines[number] = (model, tenant, priority, width)
        self.callers[number] = await self.drive.ask(
            number,
            model=model,
            tenant=tenant,
            priority=priority,
            width=width,
            rows=rows,
            within_s=within_s,
        )

    def taken(self, batch: Batch | None) -> None:
        if batch is None:
            return
        self.batches.append(batch)
        assert sum(one.tensors[0].shape[0] for one in batch.queries) <= 4
        assert len({one.tensors[0].shape[1:] for one in batch.queries}) == 1
        for number in map(value, batch.queries):
            assert not self.callers[number].done()
            assert self.lines[number][0] == batch.model
            if not self.runs[number]:
                self.first_runs[self.lines[number]].append(number)
            self.runs[number] += 1
            assert self.runs[number] == 1 or len(batch.queries) == 1

    def finish(self, batch: Batch, how: str) -> None:
        def outcome(query: Query) -> Outcome:
            if how == "crash":
                return WorkerFailedError("died")
            self.answers[value(query)] += 1
            if how == "poison" and value(query) % 3 == 0:
                return BadInputError(str(value(query)))
            return answer(query)

        batch.done([outcome(one) for one in batch.queries])

    async def end(self) -> None:
        """Lets all that is left be done."""
        await settle()
        while self.drive.waiting() or self.batches:
            self.taken(await self.drive.take())
            while self.batches:
                self.finish(self.batches.pop(), "fine")
            self.drive.clock.pass_s(0.006)
            await settle()
        done = await asyncio.gather(*self.callers.values(), return_exceptions=True)
        for number, result in enumerate(done):
            self.judge(number, result)
        for line, numbers in self.first_runs.items():
            assert numbers == sorted(numbers), line

    def judge(self, number: int, result: object) -> None:
        assert self.runs[number] <= 2
        assert self.answers[number] <= 1
        if isinstance(result, BadInputError):
            assert result.message == str(number)
        elif isinstance(result, BaseException):
            assert isinstance(
                result,
                asyncio.CancelledError
                | DeadlineExceededError
                | ModelNotReadyError
                | OverloadedError
                | WorkerFailedError,
            )
            if isinstance(result, OverloadedError):
                assert self.runs[number] == 0
                assert result.retry_after_s > 0
        else:
            assert self.answers[number] == 1
            assert isinstance(result, Ran)
            assert result.answer.timings_ms["value"] == number


@given(_STEPS)
@settings(max_examples=150, deadline=None)
def test_every_job_gets_exactly_its_outcome(steps: list[tuple[Any, ...]]) -> None:
    async def world() -> None:
        one = World()
        for kind, *arguments in steps:
            await one.step(kind, *arguments)
        await one.end()
        assert one.drive.scheduler._running == 0
        assert all(model.running == 0 for model in one.drive.scheduler._models.values())
        assert len(one.drive.scheduler._deadlines) == 0
        assert one.drive.scheduler._admission._held == {}

    asyncio.run(world())


@given(
    before=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=8),
    stream=st.lists(
        st.tuples(
            st.sampled_from("ab"), st.sampled_from("vw"), st.sampled_from(list(Priority)[:3])
        ),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=40, deadline=None)
def test_no_stream_of_urgent_work_starves_a_job(
    before: list[tuple[str, str]], stream: list[tuple[str, str, Priority]]
) -> None:
    run_s, age_s = 0.5, 1.0

    async def steps() -> int:
        drive = Drive(limited(age_s=age_s, max_queued=1000))
        callers = [
            await drive.ask(1, model=model, tenant=tenant, priority=Priority.BULK)
            for model, tenant in before
        ]
        target = await drive.ask(2, tenant="x", priority=Priority.BULK)
        runs = 0
        while not target.done():
            model, tenant, priority = stream[runs % len(stream)]
            callers += [
                await drive.ask(model=model, tenant=tenant, priority=priority) for _ in range(2)
            ]
            await drive.order(run_s, most=1)
            runs += 1
            assert runs < 500
        for one in callers:
            one.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        return runs

    until_old = round(3 * age_s / run_s)
    # From then on each job before it costs its turn, that of who is urgent by nature, and both
    # for the other model.
    assert asyncio.run(steps()) <= until_old + 4 * (len(before) + 2)
