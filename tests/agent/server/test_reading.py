"""Bodies that are received where they stay: whole, in order, and no byte of what follows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_agent.server.apps import data_app
from edge_agent.server.bodies import Bodies
from edge_agent.server.listeners import HttpServer, listen
from edge_agent.server.reading import HEAD_BYTES, Incoming, Reader
from tests.agent.server.asgi import metrics
from tests.agent.server.fakes import FakeService, local
from tests.agent.server.test_listeners import (
    HTTPTOOLS,
    LIVE,
    Client,
    folder,
    infer,
    run,
)

__all__ = ["folder", "run"]
pytestmark = pytest.mark.skipif(HTTPTOOLS is None, reason="httptools isn't there")
MIB = 1024 * 1024


def named(name: str, size: int) -> bytes:
    """A request of some size; its reply repeats the name."""
    tensor = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    return json.dumps({"id": name, "inputs": [tensor]}).encode().ljust(size)


class Served:
    """A server, and connections to it."""

    def __init__(self, path: Path, bodies: Bodies) -> None:
        self.service = FakeService()
        self.path = path
        app = data_app(self.service, bodies, local(), metrics)
        self.server = HttpServer([listen(app, path)], 8)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_unix_connection(str(self.path)))

    def incoming(self) -> list[Incoming]:
        """Returns where each connection receives to."""
        connections: Any = self.server._connections()
        return [one._incoming for one in connections]


@asynccontextmanager
async def served(folder: Path, bodies: Bodies | None = None) -> AsyncIterator[Served]:
    one = Served(folder / "data.sock", bodies or Bodies(8 * MIB, 8 * MIB))
    await one.server.start()
    try:
        yield one
    finally:
        await one.server.stop(0.0)


@pytest.mark.parametrize("size", [200, HEAD_BYTES, 3 * HEAD_BYTES, MIB + 1, 3 * MIB])
def test_what_follows_a_body_is_the_next_request(
    run: Callable[[Any], Any], folder: Path, size: int
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            for name in ("a", "b", "c"):
                client.send(*infer(named(name, size)))
            client.send(LIVE)
            for name in ("a", "b", "c"):
                assert json.loads((await client.receive())[2])["id"] == name
            assert (await client.receive())[2] == b'{"live":true}'
            client.close()

    run(scenario())


def test_a_body_may_come_byte_by_byte(run: Callable[[Any], Any], folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head, body = infer(named("a", 200))
            client.send(head)
            for at in range(len(body)):
                client.writer.write(body[at : at + 1])
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.receive())[0] == 200
            client.close()

    run(scenario())


def test_nobody_gets_memory_who_isnt_let_in(run: Callable[[Any], Any], folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head = f"POST /nowhere HTTP/1.1\nHost: x\nContent-Length: {MIB}"
            assert (await client.ask(head))[0] == 404
            assert [incoming.piece for incoming in one.incoming()] == [None]
            client.writer.write(bytes(MIB))  # is read, and forgotten
            assert (await client.ask(LIVE))[0] == 200
            client.close()

    run(scenario())


@pytest.mark.parametrize("begun", [10, 20_000, MIB + 10_000])
def test_after_a_refusal_in_the_middle_the_rest_is_forgotten(
    run: Callable[[Any], Any], folder: Path, begun: int
) -> None:
    async def scenario() -> None:
        async with served(folder, Bodies(8 * MIB, 8 * MIB, timeout_s=0.05)) as one:
            client = await one.connect()
            head, body = infer(named("a", 2 * MIB))
            client.send(head, body[:begun])
            assert (await client.receive())[0] == 408
            assert [incoming.piece for incoming in one.incoming()] == [None]
            client.writer.write(body[begun:])
            assert (await client.ask(LIVE))[0] == 200
            client.close()

    run(scenario())


def test_too_much_in_the_air_is_refused_and_the_connection_goes_on(
    run: Callable[[Any], Any], folder: Path
) -> None:
    async def scenario() -> None:
        async with served(folder, Bodies(2 * MIB, 2 * MIB)) as one:
            one.service.gate = asyncio.Event()
            first, second = await one.connect(), await one.connect()
            first.send(*infer(named("a", 3 * MIB // 2)))
            await one.service.entered.wait()
            assert (await second.ask(*infer(named("b", 3 * MIB // 2))))[0] == 503
            assert (await second.ask(LIVE))[0] == 200
            one.service.gate.set()
            assert (await first.receive())[0] == 200
            first.close()
            second.close()

    run(scenario())


def test_a_client_that_goes_away_in_its_body_leaves_nothing(
    run: Callable[[Any], Any], folder: Path
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head, body = infer(named("a", MIB))
            client.send(head, body[:100_000])
            await client.writer.drain()
            while not any(incoming.piece for incoming in one.incoming()):
                await asyncio.sleep(0)
            client.close()
            while one.server._connections() or one.server.in_flight:
                await asyncio.sleep(0)
            assert not one.service.calls

    run(scenario())


def test_a_client_that_goes_away_cancels_the_first_of_its_calls(
    run: Callable[[Any], Any], folder: Path
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            client = await one.connect()
            client.send(*infer())
            await one.service.entered.wait()
            client.close()
            await one.service.cancelled.wait()
            assert len(one.service.calls) == 1

    run(scenario())


class Heard:
    """Stands for an HTTP protocol."""

    def __init__(self) -> None:
        self.is_in_body = False
        self.data: list[bytes] = []
        self.pieces = 0

    def data_received(self, data: bytes) -> None:
        self.data.append(bytes(data))

    def piece_received(self) -> None:
        self.pieces += 1

    def connection_lost(self, exc: Exception | None) -> None:
        raise NotImplementedError

    def eof_received(self) -> bool | None:
        raise NotImplementedError

    def pause_writing(self) -> None:
        raise NotImplementedError

    def resume_writing(self) -> None:
        raise NotImplementedError


def give(reader: Reader, data: bytes) -> int:
    """Receives as an event loop does: as much as there is room for."""
    room = reader.get_buffer(-1)
    size = min(len(room), len(data))
    room[:size] = data[:size]
    reader.buffer_updated(size)
    return size


def test_no_byte_is_asked_for_beyond_the_end_of_a_body() -> None:
    heard, incoming = Heard(), Incoming()
    reader = Reader(heard, incoming)
    incoming.begin(bytearray(b"ab"), 5, 4)
    assert give(reader, b"cdefg") == 2
    assert (incoming.piece, incoming.missing, heard.pieces) == (b"abcd", 3, 1)
    incoming.begin(bytearray(), incoming.missing, 4)
    assert give(reader, b"efgNEXT") == 3
    assert (incoming.piece, incoming.missing, heard.pieces) == (b"efg", 0, 2)
    assert give(reader, b"NEXT") == 4
    assert heard.data == [b"NEXT"]


def test_a_body_that_nobody_wants_is_read_to_its_end_and_no_further() -> None:
    heard, incoming = Heard(), Incoming()
    reader = Reader(heard, incoming)
    incoming.begin(bytearray(), 100_000, MIB)
    assert give(reader, b"x" * 10) == 10
    incoming.forget()
    left = b"x" * 99_990 + b"NEXT"
    while incoming.missing:
        left = left[give(reader, left) :]
    assert (left, heard.pieces, heard.data) == (b"NEXT", 1, [])
