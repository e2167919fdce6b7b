"""Serves apps on sockets with uvicorn's protocols: start, and stop without a lost request."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs
from uvicorn.config import Config
from uvicorn.server import ServerState

from edge_agent.server import sockets
from edge_agent.server.accepting import Accepting
from edge_agent.server.protocols import FIRST_S, IDLE_S, MAX_HEAD_BYTES, Limits, protocol
from edge_agent.server.refusals import Refused, uncounted

if TYPE_CHECKING:
    from edge_agent.server.replies import App

_CANCEL_S: Final = 1.0


class Listener(Struct, frozen=True):
    """A socket and what answers on it.

    Attributes:
        app: What answers.
        socket: Listens already.
        path: Name of a Unix socket, removed at the end.
        tls: How its connections are encrypted.
    """

    app: App
    socket: socket.socket
    path: Path | None = None
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> str:
        """Where it listens, for people."""
        return str(self.path or ":".join(map(str, self.socket.getsockname()[:2])))


class HttpServer:
    """Serves listeners until it is stopped.

    Args:
        listeners: What to serve; they are closed with it.
        max_connections: At a time, of each listener: strangers on one don't shut another.
        idle_s: See `protocols.IDLE_S`.
        first_s: See `protocols.FIRST_S`.
        refused: Told of requests that no app sees.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        max_connections: int,
        idle_s: float = IDLE_S,
        first_s: float = FIRST_S,
        refused: Refused = uncounted,
    ) -> None:
        self._listeners = listeners
        self._local = Limits(max_connections, self._lost, idle_s, idle_s, refused)
        self._network = structs.replace(self._local, first_s=first_s)
        self._states = [ServerState() for _ in listeners]
        self._servers: list[asyncio.Server] = []
        self._accepting: list[Accepting] = []
        self._ended = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """How many requests are being answered."""
        return len(self._tasks())

    async def start(self) -> None:
        """Begins to take connections."""
        # Their warnings tell of each malformed request, which anybody can send at will.
        for name in ("uvicorn.error", "python_multipart"):
            logging.getLogger(name).setLevel(logging.ERROR)
        loop = asyncio.get_running_loop()
        for listener, state in zip(self._listeners, self._states, strict=True):
            limits = self._network if listener.path is None else self._local
            make = _factory(listener.app, state, limits)
            if listener.tls is None:
                self._servers.append(await loop.create_server(make, sock=listener.socket))
            else:
                accepting = Accepting(
                    listener.socket, listener.tls, make, state.connections, limits
                )
                self._accepting.append(accepting)

    async def stop(self, drain_s: float) -> None:
        """Takes no more connections or requests, and waits for what is being answered.

        Idle connections are closed, others after their answer. Requests that aren't done in time
        are cancelled, and answered with 503.

        Args:
            drain_s: How long to wait, in seconds.
        """
        for listener in self._listeners:
            if listener.path is not None:  # while it still answers, no other daemon takes the name
                listener.path.unlink(missing_ok=True)
        for server in self._servers:
            server.close()
        for accepting in self._accepting:
            await accepting.stop()
        for connection in self._connections():
            connection.shutdown()
        await self._drained(drain_s)
        for task in self._tasks():
            task.cancel()
        await self._drained(_CANCEL_S)
        for connection in self._connections():
            if connection.transport is not None:
                connection.transport.abort()

    def _connections(self) -> list[Any]:
        return [one for state in self._states for one in state.connections]

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [one for state in self._states for one in state.tasks]

    async def _drained(self, within_s: float) -> None:
        """Waits until no connection is left, or the time is over."""
        until = monotonic() + within_s
        while self._connections() or self._tasks():
            self._ended.clear()
            for task in self._tasks():
                task.add_done_callback(self._lost)
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._ended.wait()
            except TimeoutError:
                return

    def _lost(self, *_: Any) -> None:
        self._ended.set()


def _factory(app: App, state: ServerState, limits: Limits) -> Callable[[], asyncio.Protocol]:
    config = Config(
        app,
        http=protocol(),  # type: ignore[arg-type]
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    config.load()
    made: Callable[..., asyncio.Protocol] = config.http_protocol_class
    return partial(made, config=config, server_state=state, app_state={}, limits=limits)


def event_loop() -> asyncio.AbstractEventLoop:
    """Makes the fastest event loop that can be had here."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def listen(
    app: App, path: Path, group: str | None = None, *, is_for_owner: bool = False
) -> Listener:
    """Listens on a Unix socket; for the arguments see `sockets.unix_socket`.

    Raises:
        ConfigError: As `sockets.unix_socket`.
    """
    return Listener(app, sockets.unix_socket(path, group, is_for_owner), path)
