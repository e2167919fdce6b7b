"""HTTP/1.1 as far as a load generator needs it: bytes out, a status and a length in."""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Mapping
from typing import TypeAlias

Part: TypeAlias = bytes | memoryview
Request: TypeAlias = tuple[Part, ...]  # written one after the other

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNK = 256 * 1024


def head(method: str, path: str, headers: Mapping[str, str], length: int) -> bytes:
    """Returns the head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Exchange:
    """A connection that carries one request at a time, opened again where the server ended it.

    Attributes:
        due: When the request was due, in nanoseconds of perf_counter.
        status: Status of the last answer; 0 where the server hung up instead.
    """

    def __init__(self, connect: Callable[[], socket.socket], poller: select.epoll) -> None:
        """Opens it.

        Args:
            connect: Makes a connected socket.
            poller: Tells when `advance` has something to do.
        """
        self._connect = connect
        self._poller = poller
        self._buffer = bytearray(_CHUNK)
        self._unsent: list[Part] = []
        self._answer = b""
        self._start = 0
        self._length = -1
        self.due = 0
        self.status = 0
        self._open()

    @property
    def head(self) -> bytes:
        """Head of the last answer."""
        return self._answer[: self._start]

    @property
    def body(self) -> bytes:
        """Body of the last answer."""
        return self._answer[self._start :]

    def fileno(self) -> int:
        """Descriptor of the connection."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def begin(self, request: Request, due: int) -> None:
        """Writes as much of a request as the kernel takes."""
        if self._unsent or self._is_ended():
            self.close()
            self._open()
        self.due, self.status = due, 0
        self._answer, self._length = b"", -1
        self._unsent = list(request)
        self._write()

    def advance(self) -> bool:
        """Writes and reads what is possible; returns whether the exchange is over.

        Raises:
            ValueError: An answer that doesn't say how long it is.
        """
        self._write()
        while True:
            try:
                count = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            self._answer += memoryview(self._buffer)[:count]
            if not count or self._is_whole():
                return True

    def _open(self) -> None:
        self._socket = self._connect()
        self._socket.setblocking(False)
        self._poller.register(self._socket, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)

    def _is_ended(self) -> bool:
        """Whether the server closed the connection since the last answer."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            pass
        return True

    def _write(self) -> None:
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent)
            except (BlockingIOError, BrokenPipeError, ConnectionResetError):
                return  # a server that takes no more may have answered before
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = memoryview(self._unsent[0])[sent:]

    def _is_whole(self) -> bool:
        if self._length < 0:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return False
            length = _LENGTH.search(self._answer, 0, end)
            if length is None:
                raise ValueError(f"an answer without a length: {self._answer[:end]!r}")
            self._start, self._length = end + 4, int(length[1])
        if len(self._answer) < self._start + self._length:
            return False
        self.status = int(self._answer[9:12])
        return True
