"""uvicorn's protocol on httptools, with our limits and less work for each request."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from edge_agent.server.cycle import Cycle, Signal
from edge_agent.server.protocols import MAX_HEAD_BYTES, _Limited
from edge_agent.server.reading import HEAD_BYTES, Incoming, Reader

# So much of a body is collected before the app sees any of it: most come in one piece.
_PIECE_BYTES: Final = 1024 * 1024
# While so many requests wait behind the one that is answered, no more is read of a connection.
_MAX_WAITING: Final = 16


class LimitedHttpTools(_Limited, HttpToolsProtocol):
    """HTTP/1.1 in C. The parser takes heads of any length: they are bounded here.

    One piece of a body is read before its app asks for it, and each further one when it does. What
    a head declares gets no more memory than a piece; its pages are touched when they are filled.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._incoming = Incoming()
        self.is_in_body = False
        self._in_head = False
        self._head_bytes = 0
        self._is_small = True
        self._left = 0
        self._has_body_come = False
        self._is_over = False  # what comes after the request that is being answered isn't HTTP
        self._before: Cycle | None = None  # the request before the one that is being read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to read."""
        super().connection_made(transport)
        self.transport.set_protocol(Reader(self, self._incoming))

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends."""
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.read_on = None  # it has us in its turn

    def data_received(self, data: bytes) -> None:
        """Takes what was received and is no awaited piece of a body."""
        self._is_small = not self.is_in_body  # as `Reader` reads
        self._has_body_come = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # to nothing that is spoken here: uvicorn answers such a request as any other
        except httptools.HttpParserError:
            self.send_400_response("")
            return
        if self._in_head:
            self._head_bytes += min(len(data), HEAD_BYTES)  # most of a large one was a body
            self._check_head(self._head_bytes)
        elif self._left and not self.cycle.response_complete:
            self._await_body(self.cycle)
        elif self.is_in_body and not self._left:  # trailers and extensions of chunks: as a head
            self._head_bytes = 0 if self._has_body_come else self._head_bytes + len(data)
            self._check_head(self._head_bytes)

    def on_message_begin(self) -> None:
        """Begins a request."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._left = 0
        self._before = self.cycle

    def on_header(self, name: bytes, value: bytes) -> None:
        """Takes a field of a head, or of trailers.

        Raises:
            ValueError: The body comes in a coding that isn't read here; the parser refuses it then.
        """
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"content-length":
            self._left = int(value)
        elif name == b"transfer-encoding" and value.lower() != b"chunked":
            raise ValueError(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begins to answer a request. Of what uvicorn's own does, this is what matters here."""
        self._in_head = False
        self.is_in_body = True
        is_short = self._is_small and not self._head_bytes  # all of it came in one read
        if not is_short and not self._check_head(
            len(self.url) + sum([len(name) + len(value) for name, value in self.headers])
        ):
            self._left = 0
            return
        parser, scope, before = self.parser, self.scope, self.cycle
        version = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        if parser.should_upgrade():
            self._left = 0
        self.cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=Signal(self.loop),  # type: ignore[arg-type]
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self.cycle.read_on = self._read_on
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Takes a part of a body that came with its head, or whose length isn't known."""
        self._left = max(0, self._left - len(body))
        self._has_body_come = True
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) >= _PIECE_BYTES:
            self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Ends the body of a request."""
        self.is_in_body = False
        self._left = 0
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def piece_received(self) -> None:
        """Implements `reading.Http`."""
        incoming = self._incoming
        if incoming.piece is not None:
            self.cycle.body = incoming.piece
            incoming.forget()
        if incoming.missing:
            self.cycle.message_event.set()
            self.flow.pause_reading()
        else:
            self.parser = httptools.HttpRequestParser(self)  # the old one still waits for this body
            self.on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on to the next request. `_look` sees to idle connections, without a timer more."""
        self.server_state.total_requests += 1
        if self.cycle.response_complete:  # else what comes is the body of the next one
            self._incoming.forget()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        self._resume()

    def _read_on(self, cycle: Cycle) -> None:
        """Has more received: of a body, or of what tells that the client went away."""
        if cycle.more_body:
            self._await_body(cycle)
            self.flow.resume_reading()
        else:
            self._resume()

    def _resume(self) -> None:
        if len(self.pipeline) < _MAX_WAITING and not self._is_over:
            self.flow.resume_reading()

    def _await_body(self, cycle: Cycle) -> None:
        """Has the next piece of a body received, unless that is going on."""
        incoming = self._incoming
        missing = incoming.missing or self._left
        if missing and incoming.piece is None and cycle is self.cycle:
            incoming.begin(cycle.body, missing, _PIECE_BYTES)
            cycle.body = bytearray()

    def _end(self, status: int, message: str) -> None:
        """Answers without an app, and closes the connection.

        A client takes the next answer as that to its first request: where some are unanswered, the
        connection ends after these.
        """
        last: Any = self.cycle
        is_later = not self.is_in_body or last is self._before
        if last is None or last.response_complete or not is_later:
            super()._end(status, message)
            return
        self._limits.refused(status, "HttpError")
        self._is_over = True
        self.flow.pause_reading()
        last.keep_alive = False

    def _check_head(self, size: int) -> bool:
        if size <= MAX_HEAD_BYTES:
            return True
        if not self.transport.is_closing():
            self._end(431, "the headers are too large")
        return False
