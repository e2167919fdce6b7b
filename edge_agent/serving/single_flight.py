"""Identical work is done once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from edge_agent.errors import DeadlineExceededError, OverloadedError

T = TypeVar("T")


class _Flight(Generic[T]):
    """Work under way.

    Attributes:
        task: The work.
        fingerprint: Of what it works on.
        joined: How many wait for it.
    """

    def __init__(self, task: asyncio.Task[T], fingerprint: bytes) -> None:
        self.task = task
        self.fingerprint = fingerprint
        self.joined = 0


class SingleFlight(Generic[T]):
    """Work under way, by key.

    It goes on as long as anybody waits for it, whoever asked first; then it is cancelled.
    """

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def fingerprint(self, key: Hashable) -> bytes | None:
        """Returns what the work under way was started with; None where there is none."""
        flight = self._flights.get(key)
        return flight.fingerprint if flight else None

    async def run(
        self, key: Hashable, work: Callable[[], Awaitable[T]], fingerprint: bytes = b""
    ) -> T:
        """Joins the work under way, or starts it.

        A caller's own deadline is its own matter (`asyncio.timeout_at`): the work keeps that of
        whoever started it. Where it fails over the starter's deadline or share, those who joined
        start anew.

        Args:
            key: Work of the same key has the same result.
            work: Does it.
            fingerprint: What `fingerprint` tells meanwhile.

        Raises:
            BaseException: What the work raises.
        """
        while True:
            flight = self._flights.get(key)
            is_mine = flight is None
            if flight is None:
                flight = self._start(key, work, fingerprint)
            try:
                return await self._join(key, flight)
            except (DeadlineExceededError, OverloadedError):
                if is_mine:
                    raise

    def _start(
        self, key: Hashable, work: Callable[[], Awaitable[T]], fingerprint: bytes
    ) -> _Flight[T]:
        async def fly() -> T:
            return await work()

        flight = self._flights[key] = _Flight(asyncio.create_task(fly()), fingerprint)
        flight.task.add_done_callback(lambda _: self._forget(key, flight))
        return flight

    async def _join(self, key: Hashable, flight: _Flight[T]) -> T:
        flight.joined += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.joined -= 1
            if not flight.joined and not flight.task.done():
                self._forget(key, flight)
                flight.task.cancel()
                await asyncio.wait([flight.task])

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]
