"""Takes connections that are to be encrypted, and counts them from their handshake on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from edge_agent.server.protocols import Limits

_HANDSHAKE_S: Final = 10.0
_AGAIN_S: Final = 0.5


class Accepting:
    """Accepts the connections of one listener.

    `asyncio.Server` begins a handshake with whoever comes. Each takes a descriptor and memory: all
    that there are, for as long as handshakes may take.

    Args:
        listening: Where they come.
        context: How they are encrypted.
        make: Makes the protocol of one.
        connections: Those whose handshake is done.
        limits: How many of both may be at a time.
    """

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        connections: Collection[Any],
        limits: Limits,
    ) -> None:
        self._listening = listening
        self._context = context
        self._make = make
        self._connections = connections
        self._limits = limits
        self._handshakes: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._accept())

    async def stop(self) -> None:
        """Takes no more of them; those whose handshake is done go on."""
        tasks = {self._task, *self._handshakes}
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listening)
            except OSError:  # it has gone already, or there is no descriptor for it
                await asyncio.sleep(_AGAIN_S)
                continue
            if len(self._handshakes) + len(self._connections) >= self._limits.max_connections:
                self._limits.refused(503, "HttpError")
                connection.close()
                continue
            handshake = asyncio.create_task(self._encrypt(connection))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    async def _encrypt(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it went away, or doesn't speak TLS as we do; it is closed then
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_S,
            )
