"""Clients that ask one model all the time, in threads, and remember every answer."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, NamedTuple

from PIL import Image

from .conftest import NAME
from .daemons import Daemon

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def picture(colour: str, number: int = 0) -> bytes:
    """Makes one of 400 pictures in which a colour dominates."""
    shades = iter(divmod(number % 400, 20))
    file = BytesIO()
    pixel = tuple(one or next(shades) for one in COLOURS[colour])
    Image.new("RGB", (8, 8), pixel).save(file, "PNG")
    return file.getvalue()


class Connection(HTTPConnection):
    """HTTP over a Unix socket; httpx leaks one that nobody listens on."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30.0)
        self.sock.connect(str(self._path))


class Answer(NamedTuple):
    """What came of one request.

    Attributes:
        begun: When it was sent, on the clock of ``time.monotonic``.
        colour: What was asked.
        status: Of the reply; None where there was none.
        document: The reply's body.
    """

    begun: float
    colour: str
    status: int | None
    document: Any

    @property
    def version(self) -> str:
        """Which version answered."""
        return str(self.document["model"]["version"])

    @property
    def label(self) -> str:
        """What it answered."""
        return str(self.document["labels"][0]["label"])


class Load:
    """Asks while its block runs.

    Args:
        daemon: Whom.
        clients: How many at a time.
        name: Which model.
        colours: What they send, in turn.
        kinds: How many different pictures of each colour: those that come again are answered
            from the cache.
    """

    def __init__(
        self,
        daemon: Daemon,
        clients: int = 4,
        name: str = NAME,
        colours: Sequence[str] = tuple(COLOURS),
        kinds: int = 400,
    ) -> None:
        self.answers: list[Answer] = []
        self._daemon = daemon
        self._name = name
        self._colours = colours
        self._kinds = kinds
        self._numbers = itertools.count()
        self._stop = Event()
        self._threads = [Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(40)
        assert not any(thread.is_alive() for thread in self._threads)

    def wait_for(self, count: int, matching: Callable[[Answer], bool] | None = None) -> None:
        """Waits for so many more answers that match, by default that are right."""
        wanted = matching or (lambda one: one.status == 200)
        start = len(self.answers)

        def is_there() -> bool:
            return sum(map(wanted, self.answers[start:])) >= count

        self._daemon.wait(is_there)

    def stalls(self, seconds: float = 0.3) -> bool:
        """Whether nothing was answered for so long."""
        return not self.answers or time.monotonic() - self.answers[-1].begun > seconds

    def failed(self) -> list[Answer]:
        """What was not answered."""
        return [one for one in self.answers if one.status != 200]

    def _ask(self) -> None:
        while not self._stop.is_set():
            with closing(Connection(self._daemon.runtime_dir / "data.sock")) as connection:
                while not self._stop.is_set() and self._ask_once(connection):
                    pass
            self._stop.wait(0.01)

    def _ask_once(self, connection: Connection) -> bool:
        """Returns whether there was a reply."""
        number = next(self._numbers)
        colour = self._colours[number % len(self._colours)]
        image = picture(colour, number % self._kinds)
        begun, status, document = time.monotonic(), None, None
        try:
            connection.request("POST", f"/infer/{self._name}", image)
            reply = connection.getresponse()
            status, document = reply.status, json.loads(reply.read())
        except (OSError, HTTPException):
            pass
        self.answers.append(Answer(begun, colour, status, document))
        return status is not None
