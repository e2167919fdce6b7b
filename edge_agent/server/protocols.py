"""uvicorn's HTTP/1.1 protocols with what they lack: peers, limits, and errors in JSON.

Both of its implementations are served: httptools where there is a wheel, h11 everywhere.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol

from edge_agent.server.auth import PEER
from edge_agent.server.refusals import Refused
from edge_agent.server.watching import WANTED, Wanted

MAX_HEAD_BYTES: Final = 32 * 1024
# A connection that doesn't get on with its next request for so long is closed,
IDLE_S: Final = 75
# and on TCP, where nobody knows yet who it is, one that doesn't get on with its first.
FIRST_S: Final = 10
_UCRED: Final = struct.Struct("3i")  # unix(7), SO_PEERCRED: pid, uid, gid
_REASONS: Final = {400: "Bad Request", 431: "Request Header Fields Too Large", 503: "Busy"}


class Limits(Struct, frozen=True):
    """What the connections of one listener have in common.

    Attributes:
        max_connections: At a time.
        on_lost: Called when one has ended.
        idle_s: See `IDLE_S`.
        first_s: How long the head of the first request may take, in seconds.
        refused: Told of requests that no app sees.
    """

    max_connections: int
    on_lost: Callable[[], None]
    idle_s: float
    first_s: float
    refused: Refused


class _Limited(asyncio.Protocol):
    """Stands before one of uvicorn's protocols.

    Args:
        limits: For all connections of its listener.
        more: As uvicorn's protocols take it.
    """

    transport: Any
    connections: Any
    cycle: Any
    loop: Any
    app_state: Any

    def __init__(self, *, limits: Limits, **more: Any) -> None:
        super().__init__(**more)
        self._limits = limits
        self._wanted = Wanted()
        self._seen: object = None
        self._unread = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self.connections) >= self._limits.max_connections:
            self.transport = transport
            self._end(503, "too many connections")
            return
        super().connection_made(transport)
        self.app_state = {PEER: peer(transport), WANTED: self._wanted}
        self._timer = self.loop.call_later(self._limits.first_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._wanted.end()
        if self._timer is not None:
            self._timer.cancel()
        self._limits.on_lost()

    def shutdown(self) -> None:
        """Ends the connection, after the answer that is being made, if there is one."""
        super().shutdown()  # type: ignore[misc]
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.default_headers = [(b"connection", b"close")]

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own words
        self._end(400, "this isn't HTTP/1.1")

    def _end(self, status: int, message: str) -> None:
        """Answers without an app, and closes the connection."""
        self._limits.refused(status, "HttpError")
        body = b'{"error":"%s","kind":"HttpError"}' % message.encode()
        retry = "Retry-After: 1\r\n" if status == 503 else ""
        self.transport.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n".encode()
            + body
        )
        self.transport.close()

    def _look(self) -> None:
        """Ends a connection that hasn't got on since the last look, unless we are the reason."""
        unread = self.transport.get_write_buffer_size()
        is_same = self._seen is self.cycle
        if is_same and 0 < unread >= self._unread:
            self.transport.abort()  # to close it would wait until all is read
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and is_same:
            self.transport.close()
        self._seen, self._unread = self.cycle, unread
        self._timer = self.loop.call_later(self._limits.idle_s, self._look)


class LimitedH11(_Limited, H11Protocol):
    """HTTP/1.1 in Python; h11 itself bounds the head."""


def protocol() -> Callable[..., asyncio.Protocol]:
    """Returns the faster of the protocols that can be had here."""
    try:
        from edge_agent.server.protocols_fast import LimitedHttpTools
    except ImportError:
        return LimitedH11
    return LimitedHttpTools


def peer(transport: asyncio.BaseTransport) -> str | None:
    """Returns the tenant at the other end of a connection: its user, or its certificate's name."""
    certificate = transport.get_extra_info("peercert")
    if certificate:
        return _certified(certificate)
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family != socket.AF_UNIX:
        return None
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    except OSError:
        return None
    return f"uid:{_UCRED.unpack(told)[1]}"


def _certified(certificate: dict[str, Any]) -> str | None:
    """Returns the common name of a client's certificate as a tenant."""
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName" and value.isprintable() and 0 < len(value) <= 64:
                return f"cert:{value}"
    return None
