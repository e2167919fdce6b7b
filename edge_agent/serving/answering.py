"""The way of one call: to a version, through the cache or the queue, to a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from edge_agent.cache.key import CacheSubject, Origin
from edge_agent.cache.tickets import INLINE_BYTES, Ticket
from edge_agent.calls import Reply
from edge_agent.errors import DeadlineExceededError, ModelNotReadyError
from edge_agent.scheduler import grouping
from edge_agent.scheduler.job import Job
from edge_agent.serving import statistics
from edge_agent.serving.idempotency import Idempotency, reply_bytes
from edge_agent.serving.joining import Joining
from edge_agent.serving.life_cycle import not_ready

if TYPE_CHECKING:
    from edge_agent.cache.cache import ResultCache
    from edge_agent.calls import Call
    from edge_agent.serve_config import ServeConfig
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.registry import Registry
    from edge_agent.telemetry.metrics import Meter

T = TypeVar("T")

_MOVES: Final = 3
_KEPT_REPLIES: Final = 4096
_KEPT_BYTES: Final = 16 * 1024 * 1024
_KEPT_S: Final = 600.0
_NO_ORIGIN: Final = Origin("", ())


class _Way(NamedTuple):
    """One call and what was decided about it."""

    call: Call
    entry: Entry
    deadline: float


class Answering:
    """Answers calls.

    Args:
        registry: Which version answers.
        life_cycle: What wakes one that rests.
        cache: Answers that were given before.
        meter: Counts calls.
        config: What is configured now.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        cache: ResultCache,
        meter: Meter,
        config: Callable[[], ServeConfig],
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._cache = cache
        self._meter = meter
        self._config = config
        self._joining = Joining()
        self._retries = _no_replies()
        self._forgot = 0  # how often

    async def forget(self) -> None:
        """Forgets every answer: what isn't trusted any more ran beside all others of its workers.

        Raises:
            CacheUnusable: Answers on the disk can't be removed.
        """
        self._retries = _no_replies()
        self._forgot += 1
        await self._cache.clear()

    async def infer(self, call: Call) -> Reply:
        """Answers a call, and counts it; for errors see `Service.infer`."""
        started, arrived = perf_counter(), monotonic()
        entry: Entry | None = None
        reply: Reply | None = None
        try:
            while reply is None:
                entry = self._registry.find(call.model, call.version)
                reply = await self._answer(_Way(call, entry, self._deadline(call, entry, arrived)))
        except BaseException as error:  # a client that went away, too
            self._count_failure(entry, error, perf_counter() - started)
            raise
        assert entry is not None  # noqa: S101 - it has answered
        total_s = perf_counter() - started
        rows = grouping.rows(call.query) if entry.batches else 1
        statistics.count(entry.statistics, reply, rows, total_s)
        self._meter.answered(reply, call.priority, rows, total_s)
        return reply

    def _count_failure(self, entry: Entry | None, error: BaseException, total_s: float) -> None:
        if entry is None:
            self._meter.failed("", "", error)
            return
        statistics.count_failure(entry.statistics, total_s)
        self._meter.failed(entry.ref.name, entry.ref.version, error)

    def _deadline(self, call: Call, entry: Entry, arrived: float) -> float:
        if call.deadline is not None:
            return call.deadline
        promised = entry.description.contract.deadline_ms
        return arrived + (promised or self._config().default_deadline_ms) / 1e3

    async def _answer(self, way: _Way) -> Reply | None:
        """Has a version answer; None where another took its place before it could."""
        call, entry, _ = way
        try:
            if entry.state == "UNLOADING":  # else it would never be done
                raise not_ready(entry)
            entry.enter()
            try:
                if call.idempotency_key is None:
                    return await self._cached(way)
                return await self._once(way, call.idempotency_key)
            finally:
                entry.leave()
        except ModelNotReadyError:
            if self._registry.find(call.model, call.version) is entry:
                raise
            return None

    async def _once(self, way: _Way, key: str) -> Reply:
        """A call that is sent again with its idempotency key gets the reply of the first time."""
        call = way.call
        # As it was asked for: a retry may come when another version is live, or an alias has moved.
        name = (call.tenant, call.model, key)
        ticket = Ticket(CacheSubject(call.version or "", "", _NO_ORIGIN, ""), call.query)
        if ticket.key is None and ticket.size > INLINE_BYTES:
            await _in_time(way, asyncio.to_thread(ticket.compute))
        digest = ticket.key or ticket.compute()
        is_first = False

        async def execute() -> Reply:
            nonlocal is_first
            is_first = True
            return await self._cached(way)

        reply = await _in_time(way, self._retries.run(name, digest, execute))
        return reply if is_first else _again(reply)

    async def _cached(self, way: _Way) -> Reply:
        entry = way.entry
        if not entry.can_answer:
            await self._awake(way)
        ticket = self._cache.ticket(_subject(way), way.call.query)
        if self._cache.looks_up(ticket):
            asked = perf_counter()
            answer = await self._cache.get(ticket)
            if answer is not None:
                return Reply(answer, entry.ref, entry.engine, is_cached=True)
            statistics.count_miss(entry.statistics, perf_counter() - asked)
        while True:
            reply = await self._in_flight(way, ticket)
            if reply is not None:
                return reply

    async def _in_flight(self, way: _Way, ticket: Ticket) -> Reply | None:
        """Runs a call, or joins one that asks the same; None where that one gave up."""
        flight, priority = await self._cache.flights.enter(ticket), way.call.priority
        try:
            if flight.ticket is not ticket:
                run = self._joining.under_way(flight, priority)
                if run is not None:
                    joined = await _in_time(way, self._joining.join(run))
                    return joined and _again(joined)
            forgot = self._forgot
            reply = await self._joining.lead((flight, priority), partial(self._run, way))
            if forgot == self._forgot:
                self._cache.put(ticket, reply.answer)
            return reply
        finally:
            self._cache.flights.leave(flight)

    async def _run(self, way: _Way) -> Reply:
        """Has a version answer, wherever it runs, and though it moves meanwhile."""
        call, entry, deadline = way
        job = Job(entry.ref.digest, call.query, call.tenant, call.priority, deadline)
        for _ in range(_MOVES):
            if not entry.can_answer:
                await self._awake(way)
            host = entry.host
            assert host is not None  # noqa: S101 - what is ready runs somewhere
            if call.on_queued is not None:
                call.on_queued()
            try:
                ran = await host.scheduler.submit(job)
            except ModelNotReadyError:
                if entry.host is host:
                    raise
                continue  # it moves to other workers
            return Reply(ran.answer, entry.ref, entry.engine, False, ran.queue_ms, ran.batch_size)
        raise not_ready(entry)

    async def _awake(self, way: _Way) -> None:
        """Waits until a version is ready that can be: it rests, or moves to other workers."""
        entry = way.entry
        if not entry.wakes and entry.state != "LOADING":
            raise not_ready(entry)
        await self._life_cycle.wake(entry, max(0.0, way.deadline - monotonic()))


async def _in_time(way: _Way, work: Awaitable[T]) -> T:
    """Waits for work that another call started, no longer than this one may.

    Raises:
        DeadlineExceededError: It isn't done by then.
    """
    try:
        async with asyncio.timeout(max(0.0, way.deadline - monotonic())):
            return await work
    except TimeoutError as error:
        raise DeadlineExceededError(
            f"{way.entry.ref.name} did not answer in time", hint="allow more time"
        ) from error


def _again(reply: Reply) -> Reply:
    """Returns the reply of another call as this one's: it was not run for it."""
    return Reply(reply.answer, reply.model, reply.engine, is_cached=True)


def _subject(way: _Way) -> CacheSubject:
    entry = way.entry
    return CacheSubject(entry.ref.digest, entry.pipeline_digest, entry.origin, way.call.tenant)


def _no_replies() -> Idempotency[Reply]:
    return Idempotency(_KEPT_REPLIES, _KEPT_S, max_bytes=_KEPT_BYTES, size_of=reply_bytes)
