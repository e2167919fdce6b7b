"""Receives the bytes of a connection: a body whose length is known comes right where it stays."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

# A head is rarely longer. What comes of a body with it is copied, the rest isn't.
HEAD_BYTES: Final = 16 * 1024
# One for all connections: what it holds has been used before anybody else reads.
_SCRATCH: Final = memoryview(bytearray(64 * 1024))
_FOR_HEADS: Final = _SCRATCH[:HEAD_BYTES]


# Zeros that are overwritten next cost as much as another copy of the body.
_unwritten: Final[Callable[[int], bytearray]] = partial(
    ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t)(
        ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
    ),
    None,
)


class Incoming:
    """The rest of a body that is received past the parser, piece by piece.

    Attributes:
        missing: Bytes of it that haven't come; 0 where everything goes through the parser.
        piece: What is being filled; None where nobody asked for it: then it is read and forgotten.
    """

    __slots__ = ("_got", "_room", "missing", "piece")

    def __init__(self) -> None:
        self.missing = 0
        self.piece: bytearray | None = None
        self._room = _SCRATCH
        self._got = 0

    def begin(self, begun: bytearray, missing: int, most: int) -> None:
        """Begins a piece.

        Args:
            begun: What has come of it already.
            missing: Bytes of the body that haven't come.
            most: Most bytes of a piece.
        """
        self._got = len(begun)
        self.missing = missing
        self.piece = _unwritten(min(self._got + missing, max(most, self._got + 1)))
        self.piece[: self._got] = begun
        self._room = memoryview(self.piece)

    def forget(self) -> None:
        """Gives up the piece."""
        self.piece = None
        self._room = _SCRATCH

    def space(self) -> memoryview:
        """Returns where to receive to: never more than is missing."""
        return _SCRATCH[: self.missing] if self.piece is None else self._room[self._got :]

    def is_filled_by(self, size: int) -> bool:
        """Takes note of what was received, and says whether the piece is whole."""
        self.missing -= size
        if self.piece is None:
            return not self.missing
        self._got += size
        return self._got == len(self._room)


class Http(Protocol):
    """What understands the bytes of one connection.

    Attributes:
        is_in_body: Whether it is in a body, not in a head or before one.
    """

    is_in_body: bool

    def data_received(self, data: bytes) -> None:
        """Takes bytes for the parser; they are gone when it returns."""

    def piece_received(self) -> None:
        """Takes the piece of a body that is whole now, or the end of a body that nobody wants."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As `asyncio.Protocol`."""

    def eof_received(self) -> bool | None:
        """As `asyncio.Protocol`."""

    def pause_writing(self) -> None:
        """As `asyncio.Protocol`."""

    def resume_writing(self) -> None:
        """As `asyncio.Protocol`."""


class Reader(asyncio.BufferedProtocol):
    """Stands between a transport and an HTTP protocol.

    Otherwise the event loop makes bytes of all that it reads, the parser slices them, and somebody
    joins the slices: three copies of each tensor. Of a body no byte is asked for beyond its end,
    so that the next request stays in the socket until the parser wants it.

    Args:
        http: The protocol.
        incoming: Where it wants a body.
    """

    def __init__(self, http: Http, incoming: Incoming) -> None:
        self._http = http
        self._incoming = incoming

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Returns where to receive to."""
        incoming = self._incoming
        if incoming.missing:
            return incoming.space()
        return _SCRATCH if self._http.is_in_body else _FOR_HEADS

    def buffer_updated(self, nbytes: int) -> None:
        """Hands on what was received."""
        incoming = self._incoming
        if not incoming.missing:
            self._http.data_received(_SCRATCH[:nbytes])  # type: ignore[arg-type]
        elif incoming.is_filled_by(nbytes):
            self._http.piece_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """As `asyncio.BufferedProtocol`."""
        self._incoming.forget()
        self._http.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """As `asyncio.BufferedProtocol`."""
        return self._http.eof_received()

    def pause_writing(self) -> None:
        """As `asyncio.BufferedProtocol`."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """As `asyncio.BufferedProtocol`."""
        self._http.resume_writing()
