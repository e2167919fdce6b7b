"""Clients that ask all the time, in threads, and check each answer."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread
from time import monotonic, sleep
from typing import NamedTuple

from serving.connections import unix
from serving.http import Exchange, Request, head

from soaking.bundles import COLOURS, KINDS, LABELS, NAME, picture

_ANSWER_S = 30.0
_SHOWN = 10


class Answer(NamedTuple):
    """One right answer: when it was asked for, on the clock of ``time.monotonic``, and by whom."""

    begun: float
    version: str


class Clients:
    """Asks for three colours in turn.

    Args:
        socket: The daemon's data socket.

    Attributes:
        answered: How many right answers there were.
        recent: The latest of them; whoever looks at them clears them.
        failures: What wasn't answered with 200, or not at all.
        wrong: Answers that no version gives.
    """

    def __init__(self, socket: str) -> None:
        self.answered = 0
        self.recent: list[Answer] = []
        self.failures: list[str] = []
        self.wrong: list[str] = []
        self._socket = socket
        self._stop = Event()
        self._numbers = count()
        self._requests = {
            colour: [_request(colour, number) for number in range(KINDS)] for colour in COLOURS
        }

    @contextmanager
    def asking(self, clients: int) -> Iterator[None]:
        """Asks while the block runs."""
        threads = [Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(_ANSWER_S)

    def wait_for_answer(self, since: float, within_s: float, least: int = 1) -> float | None:
        """Waits for right answers to what was asked since then.

        Returns:
            Seconds until the last of them was there; None where it took too long.
        """
        while monotonic() < since + within_s:
            if sum(one.begun >= since for one in list(self.recent)) >= least:
                return monotonic() - since
            sleep(0.002)
        return None

    def told(self) -> str:
        """Returns some of what went wrong."""
        return "; ".join([*self.wrong[:_SHOWN], *self.failures[:_SHOWN]])

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with select.epoll() as poller:
                    exchange = Exchange(unix(self._socket), poller)
                    try:
                        self._ask(exchange, poller)
                    finally:
                        exchange.close()
            except OSError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                sleep(0.01)

    def _ask(self, exchange: Exchange, poller: select.epoll) -> None:
        while not self._stop.is_set():
            number = next(self._numbers)
            colour = list(COLOURS)[number % len(COLOURS)]
            begun = monotonic()
            exchange.begin(self._requests[colour][number % KINDS], 0)
            while not exchange.advance():
                poller.poll(1.0)
                if monotonic() > begun + _ANSWER_S:
                    raise TimeoutError("no answer")
            if exchange.status == 200:
                self._check(colour, begun, exchange.body)
            else:
                self.failures.append(f"{exchange.status} {exchange.body[:200]!r}")

    def _check(self, colour: str, begun: float, body: bytes) -> None:
        document = json.loads(body)
        version, label = document["model"]["version"], document["labels"][0]["label"]
        if LABELS[version][colour] != label:
            self.wrong.append(f"{version} says {label} to {colour}")
            return
        self.answered += 1
        self.recent.append(Answer(begun, version))


def _request(colour: str, number: int) -> Request:
    body = picture(colour, number)
    return head("POST", f"/infer/{NAME}", {}, len(body)), body
