"""What is sent twice is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from edge_agent.calls import Answer, OutputTensor, Reply
from edge_agent.errors import (
    AgentError,
    BadInputError,
    DeadlineExceededError,
    ImageError,
    OverloadedError,
    WorkerFailedError,
)
from edge_agent.serving.idempotency import Idempotency, reply_bytes
from edge_agent.serving.single_flight import SingleFlight
from edge_agent.types import ModelRef, ScoredLabel
from tests.agent.scheduler.drive import Clock, settle

KEY = ("tenant", "model", "key")


class Work:
    """Work that ends when it is told to; it counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self._ends: list[asyncio.Future[str]] = []

    async def __call__(self) -> str:
        self.begun += 1
        end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        try:
            return await end
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def end(self, outcome: str | AgentError = "done") -> None:
        end = self._ends.pop(0)
        if end.cancelled():
            return
        if isinstance(outcome, AgentError):
            end.set_exception(outcome)
        else:
            end.set_result(outcome)


def memory(
    clock: Clock | None = None, *, entries: int = 10, max_bytes: int = 100_000
) -> Idempotency[str]:
    return Idempotency(entries, 60.0, max_bytes=max_bytes, size_of=len, clock=clock or Clock())


async def done(text: str = "done") -> str:
    return text


def test_a_second_call_joins_the_first_and_a_third_gets_what_was_kept() -> None:
    async def steps() -> None:
        work, calls = Work(), memory()
        both = [asyncio.create_task(calls.run(KEY, b"q", work)) for _ in range(2)]
        await settle()
        work.end()
        assert await asyncio.gather(*both) == ["done", "done"]
        assert await calls.run(KEY, b"q", work) == "done"
        assert work.begun == 1

    asyncio.run(steps())


@pytest.mark.parametrize(
    "other", [("T", "model", "key"), ("tenant", "M", "key"), ("tenant", "model", "K")]
)
def test_tenants_models_and_keys_are_told_apart(other: tuple[str, str, str]) -> None:
    async def steps() -> None:
        calls = memory()
        await calls.run(KEY, b"q", lambda: done("one"))
        assert await calls.run(other, b"r", lambda: done("two")) == "two"

    asyncio.run(steps())


def test_a_key_is_not_taken_for_another_query_in_the_air_or_later() -> None:
    async def steps() -> None:
        work, calls = Work(), memory()
        first = asyncio.create_task(calls.run(KEY, b"q", work))
        await settle()
        with pytest.raises(BadInputError, match="another query"):
            await calls.run(KEY, b"other", work)
        work.end()
        await first
        with pytest.raises(BadInputError, match="another query"):
            await calls.run(KEY, b"other", work)
        assert work.begun == 1

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [(ImageError("no", path="x", hint="y"), True), (WorkerFailedError("died"), False)],
)
def test_only_a_refusal_of_the_input_is_kept(error: AgentError, is_kept: bool) -> None:
    async def fail() -> str:
        raise error

    async def steps() -> None:
        calls = memory()
        with pytest.raises(type(error)):
            await calls.run(KEY, b"q", fail)
        if not is_kept:
            assert await calls.run(KEY, b"q", done) == "done"
            return
        kept = []
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                await calls.run(KEY, b"q", done)
            kept.append(caught.value)
        assert [(one.message, one.path, one.hint) for one in kept] == [("no", "x", "y")] * 2
        assert kept[0] is not kept[1]

    asyncio.run(steps())


def test_work_goes_on_for_who_joined_when_the_first_gives_up() -> None:
    async def steps() -> None:
        work, calls = Work(), memory()
        first, second = (asyncio.create_task(calls.run(KEY, b"q", work)) for _ in range(2))
        await settle()
        first.cancel()
        await settle()
        assert first.cancelled()
        work.end()
        assert await second == "done"
        assert (work.begun, work.cancelled) == (1, 0)

    asyncio.run(steps())


def test_work_that_nobody_waits_for_is_cancelled_and_begun_anew() -> None:
    async def steps() -> None:
        work, calls = Work(), memory()
        both = [asyncio.create_task(calls.run(KEY, b"q", work)) for _ in range(2)]
        await settle()
        for one in both:
            one.cancel()
        await asyncio.wait(both)
        assert (work.begun, work.cancelled) == (1, 1)
        assert await calls.run(KEY, b"another", done) == "done"

    asyncio.run(steps())


def test_nobody_joins_work_that_is_being_cancelled() -> None:
    async def steps() -> None:
        work, calls = Work(), memory()
        first = asyncio.create_task(calls.run(KEY, b"q", work))
        await settle()
        first.cancel()
        again = asyncio.create_task(calls.run(KEY, b"q", work))
        await settle()
        work.end("never")
        work.end("anew")
        assert await again == "anew"
        assert (first.cancelled(), work.begun, work.cancelled) == (True, 2, 1)

    asyncio.run(steps())


def test_what_is_kept_expires() -> None:
    async def steps() -> None:
        clock = Clock()
        calls = memory(clock)
        await calls.run(KEY, b"q", lambda: done("old"))
        clock.pass_s(59.9)
        assert await calls.run(KEY, b"q", lambda: done("new")) == "old"
        clock.pass_s(0.1)
        assert await calls.run(KEY, b"q", lambda: done("new")) == "new"
        assert len(calls) == 1

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("entries", "max_bytes", "size"), [(3, 10**9, 1), (1000, 5000, 1000)], ids=["number", "bytes"]
)
def test_what_is_kept_is_bounded(entries: int, max_bytes: int, size: int) -> None:
    async def steps() -> None:
        calls = memory(entries=entries, max_bytes=max_bytes)
        for number in range(100):
            await calls.run(("t", "m", str(number)), b"q", lambda: done("x" * size))
            assert len(calls) <= 3
        assert await calls.run(("t", "m", "99"), b"q", lambda: done("again")) == "x" * size
        assert await calls.run(("t", "m", "0"), b"q", lambda: done("again")) == "again"

    asyncio.run(steps())


@pytest.mark.parametrize(("entries", "max_bytes"), [(5, 100_000), (100, 3000)])
def test_whoever_has_most_makes_room(entries: int, max_bytes: int) -> None:
    async def steps() -> None:
        calls = memory(entries=entries, max_bytes=max_bytes)
        for number in range(3):
            await calls.run(("quiet", "model", f"{number}"), b"q", done)
        for number in range(50):
            await calls.run(("loud", "model", f"{number}"), b"q", done)
        again = Work()
        for number in (1, 2):
            assert await calls.run(("quiet", "model", f"{number}"), b"q", again) == "done"
        assert await calls.run(("loud", "model", "49"), b"q", again) == "done"
        assert again.begun == 0
        assert len(calls) == 5

    asyncio.run(steps())


def test_nothing_is_left_of_a_tenant_whose_replies_are_gone() -> None:
    async def steps() -> None:
        clock = Clock()
        calls = memory(clock)
        await calls.run(KEY, b"q", done)
        clock.pass_s(60.0)
        await calls.run(("other", "model", "key"), b"q", done)
        assert (list(calls._shelves), len(calls)) == (["other"], 1)
        assert calls._bytes == calls._shelves["other"].size < 1024

    asyncio.run(steps())


def test_what_is_larger_than_all_the_room_is_not_kept() -> None:
    async def steps() -> None:
        calls = memory(max_bytes=2000)
        await calls.run(("t", "m", "small"), b"q", done)
        await calls.run(KEY, b"q", lambda: done("x" * 2000))
        assert len(calls) == 1
        assert await calls.run(KEY, b"q", lambda: done("again")) == "again"

    asyncio.run(steps())


@pytest.mark.parametrize(
    "error",
    [
        lambda: DeadlineExceededError("late"),
        lambda: OverloadedError("full", retry_after_s=1.0, is_callers_share=True),
    ],
)
def test_the_first_callers_deadline_and_share_are_not_those_of_who_joined(
    error: Callable[[], AgentError],
) -> None:
    async def steps() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        first, second, third = (asyncio.create_task(flights.run("key", work)) for _ in range(3))
        await settle()
        work.end(error())
        await settle()
        assert isinstance(first.exception(), type(error()))
        work.end()
        assert [await second, await third] == ["done", "done"]
        assert work.begun == 2
        assert len(flights) == 0

    asyncio.run(steps())


def test_any_other_failure_is_everybodys() -> None:
    async def steps() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        both = [asyncio.create_task(flights.run("key", work)) for _ in range(2)]
        await settle()
        work.end(WorkerFailedError("died"))
        results = await asyncio.gather(*both, return_exceptions=True)
        assert [type(one) for one in results] == [WorkerFailedError] * 2
        assert work.begun == 1

    asyncio.run(steps())


def test_bytes_of_a_reply() -> None:
    output = OutputTensor("y", "float32", (1, 2), bytes(8))
    answer = Answer(labels=((ScoredLabel(0, "cat", 0.5),),), outputs=(output,))
    assert reply_bytes(Reply(answer, ModelRef("n", "1.0.0", "sha256:0"), "onnx")) == 128 + 8
