"""A server on a Unix socket, and connections to it that are used by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from edge_agent.server import protocols
from edge_agent.server.listeners import HttpServer, listen
from edge_agent.server.refusals import Refused, uncounted
from tests.agent.server.asgi import data
from tests.agent.server.fakes import FakeService

HTTPTOOLS = pytest.importorskip("httptools") and protocols.protocol()
INFER = b'{"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}'


class Served(NamedTuple):
    """A server with what stands behind it."""

    server: HttpServer
    service: FakeService
    path: Path

    async def connect(self) -> Client:
        return Client(*await asyncio.open_unix_connection(str(self.path)))


class Client:
    """A connection, used by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, head: str, body: bytes = b"") -> None:
        self.writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)

    async def receive(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in fields}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ask(self, head: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        self.send(head, body)
        return await self.receive()

    async def rest(self) -> bytes:
        """Returns what comes until the connection ends."""
        received = b""
        with contextlib.suppress(ConnectionResetError):  # ended before all that was sent was read
            while data := await self.reader.read(65536):
                received += data
        return received

    async def ended(self) -> bool:
        return not await self.rest()

    def close(self) -> None:
        self.writer.close()


@contextlib.asynccontextmanager
async def served(
    folder: Path,
    max_connections: int = 8,
    idle_s: float = 75.0,
    refused: Refused = uncounted,
) -> AsyncIterator[Served]:
    service = FakeService()
    path = folder / "data.sock"
    listener = listen(data(service), path)
    server = HttpServer([listener], max_connections, idle_s, refused=refused)
    await server.start()
    try:
        yield Served(server, service, path)
    finally:
        await server.stop(0.0)


LIVE = "GET /v2/health/live HTTP/1.1\nHost: x"


def infer(body: bytes = INFER, more: str = "") -> tuple[str, bytes]:
    head = f"POST /v2/models/demo%2Fopen/infer HTTP/1.1\nHost: x\nContent-Length: {len(body)}"
    return head + more, body
