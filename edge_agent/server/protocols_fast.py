"""uvicorn's protocol on httptools, with our limits and fewer copies of large bodies."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge_agent.server.protocols import MAX_HEAD_BYTES, _Limited

# So much of a body is collected before the app sees any of it: most come in one piece.
_PIECE_BYTES: Final = 1024 * 1024


class LimitedHttpTools(_Limited, HttpToolsProtocol):
    """HTTP/1.1 in C. The parser takes heads of any length: they are bounded here."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._in_head = True
        self._head_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Takes what was received."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            self._check_head(self._head_bytes)

    def on_message_begin(self) -> None:
        """Begins a request."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """Begins to answer a request."""
        self._in_head = False
        if self._check_head(sum(len(name) + len(value) for name, value in self.headers)):
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body. uvicorn's own way copies each byte twice more."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return
        if not isinstance(cycle.body, _Pieces):
            cycle.body = _Pieces()  # what was before has just been handed out
        cycle.body.add(body)
        if cycle.body.size >= _PIECE_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()

    def _check_head(self, size: int) -> bool:
        if size <= MAX_HEAD_BYTES:
            return True
        if not self.transport.is_closing():
            self._end(431, "the headers are too large")
        return False


class _Pieces:
    """Stands for the buffer of a request, which is turned into bytes at the end."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)
