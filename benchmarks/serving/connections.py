"""Connections to a server, and one question over one of them."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from serving.http import Exchange, Request


class Server(NamedTuple):
    """A server that answers.

    Attributes:
        pid: Its first process.
        connect: Makes a connection.
    """

    pid: int
    connect: Callable[[], socket.socket]


def ask(server: Server, request: Request, timeout_s: float = 30.0) -> Exchange:
    """Asks once, and waits for the answer.

    Raises:
        OSError: No connection, or no answer in time.
    """
    end = monotonic() + timeout_s
    with select.epoll() as poller:
        exchange = Exchange(server.connect, poller)
        try:
            exchange.begin(request, 0)
            while not exchange.advance():
                poller.poll(1.0)
                if monotonic() > end:
                    raise TimeoutError(f"no answer in {timeout_s} s")
        finally:
            exchange.close()
    return exchange


def unix(place: str) -> Callable[[], socket.socket]:
    """Returns what connects to a Unix socket."""

    def connect() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(place)
        return connection

    return connect


def tcp(port: int) -> Callable[[], socket.socket]:
    """Returns what connects to a port of this machine."""

    def connect() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    return connect


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
