"""uvicorn's side of an ASGI call, with fewer copies and less work for each reply."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

# Heads with these, or without a length, are left to uvicorn.
_UVICORNS: Final = frozenset((b"connection", b"transfer-encoding"))
_CLOSE: Final = b"connection: close\r\n\r\n"


class Signal:
    """What uvicorn needs of an `asyncio.Event`, for the one who waits."""

    __slots__ = ("_is_set", "_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wakes who waits."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """Has the next one wait."""
        self._is_set = False

    async def wait(self) -> None:
        """Waits until it is set."""
        while not self._is_set:
            self._waiter = self._loop.create_future()
            await self._waiter


class Cycle(RequestResponseCycle):
    """One request and its reply.

    Attributes:
        read_on: Has more of the connection received.
    """

    read_on: Callable[[Cycle], None] | None = None
    _head: bytes | None = None
    _is_lost = False

    @property
    def disconnected(self) -> bool:
        """Whether nobody gets the reply. uvicorn tells this only to the last request of several."""
        return self._is_lost or self.transport.is_closing()

    @disconnected.setter
    def disconnected(self, value: bool) -> None:
        self._is_lost = value

    async def receive(self) -> Any:
        """As uvicorn's, but what was received is handed out as it is."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            if self.read_on is not None:
                self.read_on(self)
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Any) -> None:
        """As uvicorn's, which looks at each name and each value of a head with a pattern."""
        if self._head is not None:
            await self._send_body(message)
            return
        is_odd = self.response_started or self.default_headers or self.flow.write_paused
        if is_odd or self.disconnected or not self._has_begun(message):
            await super().send(message)

    def _has_begun(self, message: Any) -> bool:
        """Makes the head of a reply, if it isn't one of uvicorn's."""
        headers = message["headers"]
        fields = dict(headers)
        if b"content-length" not in fields or not _UVICORNS.isdisjoint(fields):
            return False
        lines = [b"%b: %b\r\n" % field for field in headers]
        head = b"".join((STATUS_LINE[message["status"]], *lines))
        if head.count(b"\n") != len(lines) + 1 or head.count(b"\r") != len(lines) + 1:
            raise RuntimeError("a header has more than one line")
        self.response_started = True
        self.waiting_for_100_continue = False
        self.chunked_encoding = False
        self.expected_content_length = int(fields[b"content-length"])
        self._head = head + (b"\r\n" if self.keep_alive else _CLOSE)
        return True

    async def _send_body(self, message: Any) -> None:
        """Sends the head with all of the body, or has uvicorn send what is of another kind."""
        head, self._head = self._head or b"", None
        body = message.get("body", b"")
        is_whole = len(body) == self.expected_content_length and not message.get("more_body")
        if self.disconnected:
            return
        if not is_whole or self.scope["method"] == "HEAD":
            self.transport.write(head)
            await super().send(message)
            return
        self.transport.write(head + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
