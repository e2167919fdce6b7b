"""One timer for many times, and the jobs' deadlines on one of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from edge_agent.scheduler.entry import Entry

_FEW: Final = 64

Clock: TypeAlias = Callable[[], float]


class Handle(Protocol):
    """A call that was arranged."""

    def cancel(self) -> None:
        """Takes it back."""


CallAt: TypeAlias = Callable[[float, Callable[[], None]], Handle]
"""Arranges a call at a time on the scheduler's clock."""


def loop_timer(clock: Clock) -> CallAt:
    """Returns the running loop's timer, for times on another clock than its own."""

    def call_at(when: float, callback: Callable[[], None]) -> Handle:
        return asyncio.get_running_loop().call_later(max(0.0, when - clock()), callback)

    return call_at


class Alarm:
    """Rings once at the earliest of the times that were asked for.

    Args:
        call_at: The timer.
        ring: Called then; whoever wants later times too, asks again.
    """

    def __init__(self, call_at: CallAt, ring: Callable[[], None]) -> None:
        self._call_at = call_at
        self._ring = ring
        self._when = math.inf
        self._handle: Handle | None = None

    def at_latest(self, when: float) -> None:
        """Has it ring at a time, or earlier."""
        if when >= self._when:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._when = when
        self._handle = self._call_at(when, self._fire)

    def _fire(self) -> None:
        self._when = math.inf
        self._handle = None
        self._ring()


class Deadlines:
    """Jobs by their deadlines; those with an answer are swept out when they are many.

    Args:
        clock: The time.
        call_at: The timer, independent of any worker.
        expired: Told of each job whose deadline has passed, before it has an answer.
    """

    def __init__(self, clock: Clock, call_at: CallAt, expired: Callable[[Entry], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._alarm = Alarm(call_at, self._ring)
        self._heap: list[tuple[float, int, Entry]] = []
        self._open = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        """Watches a job."""
        self._open += 1
        heappush(self._heap, (entry.deadline, entry.number, entry))
        self._alarm.at_latest(entry.deadline)

    def answered(self) -> None:
        """One job has its answer, or none to wait for it."""
        self._open -= 1
        if not self._open:
            self._heap.clear()
        elif len(self._heap) > _FEW + 2 * self._open:
            self._heap = [item for item in self._heap if item[2].is_open()]
            heapify(self._heap)

    def pass_by(self, now: float) -> None:
        """Tells of every job whose deadline has passed."""
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)[2]
            if entry.is_open():
                self._expired(entry)

    def _ring(self) -> None:
        self.pass_by(self._clock())
        while self._heap and not self._heap[0][2].is_open():
            heappop(self._heap)
        if self._heap:
            self._alarm.at_latest(self._heap[0][0])
