"""The load generator: one process, one epoll loop, requests that are bytes already.

Time counts from when a request was due, so a server that falls behind can't slow its own clock.
"""

from __future__ import annotations

import gc
import heapq
import select
import socket
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import NamedTuple

from serving.http import Exchange
from serving.inputs import Source

_NS = 1_000_000_000
_DRAIN_NS = 30 * _NS
_SPIN_NS = 2_000_000  # epoll's clock has steps of a millisecond


class Sample(NamedTuple):
    """One answered request, in nanoseconds of perf_counter."""

    due: int
    done: int
    status: int

    @property
    def ms(self) -> float:
        """Milliseconds from when it was due until the last byte of its answer."""
        return (self.done - self.due) / 1e6


class Flow:
    """Requests of one kind over connections of their own.

    Attributes:
        samples: What was answered.
    """

    def __init__(
        self,
        connect: Callable[[], socket.socket],
        source: Source,
        clients: int,
        *,
        arrivals: Sequence[float] | None = None,
        think_s: Callable[[], float] | None = None,
    ) -> None:
        """Describes the flow; `run` opens its connections.

        Args:
            connect: Makes a connected socket.
            source: Where requests come from.
            clients: How many connections.
            arrivals: Open loop: when requests are due, in seconds from the start, ascending.
                Without it each client asks again as soon as it was answered.
            think_s: Closed loop: how long a client pauses before it asks again.
        """
        self.samples: list[Sample] = []
        self._connect = connect
        self._clients = clients
        self._source = source
        self._think_s = think_s
        self._asks_again = arrivals is None
        self._offsets = [0.0] * clients if arrivals is None else arrivals
        self._due: list[int] = []
        self._free: list[Exchange] = []
        self._busy: dict[int, Exchange] = {}

    def open(self, poller: select.epoll) -> None:
        """Opens the connections."""
        self._free = [Exchange(self._connect, poller) for _ in range(self._clients)]

    def begin(self, now: int) -> None:
        """Sets the clock."""
        self._due = [now + int(offset * _NS) for offset in self._offsets]

    def start_due(self, now: int) -> None:
        """Sends what is due, as far as connections are free."""
        while self._free and self._due and self._due[0] <= now:
            exchange = self._free.pop()
            exchange.begin(self._source(), heapq.heappop(self._due))
            self._busy[exchange.fileno()] = exchange

    def next_due(self) -> int | None:
        """Returns when something has to be sent; None where only an answer can change that."""
        return self._due[0] if self._free and self._due else None

    def on_ready(self, descriptor: int) -> None:
        """Goes on with one connection, if it is one of these."""
        exchange = self._busy.get(descriptor)
        if exchange is None or not exchange.advance():
            return
        done = perf_counter_ns()
        self.samples.append(Sample(exchange.due, done, exchange.status))
        self._free.append(self._busy.pop(descriptor))
        if self._asks_again:
            pause = int(self._think_s() * _NS) if self._think_s else 0
            heapq.heappush(self._due, done + pause)

    def stop(self) -> None:
        """Asks nothing more."""
        self._due.clear()
        self._asks_again = False

    def is_over(self) -> bool:
        """Whether everything was asked and answered."""
        return not (self._due or self._busy)

    def close(self) -> None:
        """Closes the connections, answered or not."""
        for exchange in [*self._free, *self._busy.values()]:
            exchange.close()


def run(flows: Sequence[Flow], seconds: float) -> float:
    """Drives flows side by side until the time is over, and waits for what is in the air then.

    Returns:
        How long it took, in seconds.
    """
    gc.collect()
    gc.disable()
    with select.epoll() as poller:
        try:
            for flow in flows:
                flow.open(poller)
            started = perf_counter_ns()
            for flow in flows:
                flow.begin(started)
            end = started + int(seconds * _NS)
            _drive(flows, poller, end)
            for flow in flows:
                flow.stop()  # what a server still works at would burden whoever is next
            _drive(flows, poller, end + _DRAIN_NS)
            return (perf_counter_ns() - started) / _NS
        finally:
            gc.enable()
            for flow in flows:
                flow.close()


def _drive(flows: Sequence[Flow], poller: select.epoll, end: int) -> None:
    while (now := perf_counter_ns()) < end and not all(flow.is_over() for flow in flows):
        for flow in flows:
            flow.start_due(now)
        for descriptor, _ in poller.poll(_wait_s(flows, now, end)):
            for flow in flows:
                flow.on_ready(descriptor)


def _wait_s(flows: Sequence[Flow], now: int, end: int) -> float:
    dues = [due for flow in flows if (due := flow.next_due()) is not None]
    rest = min([*dues, end]) - now
    return 0.0 if rest < _SPIN_NS else (rest - _SPIN_NS) / _NS
