"""Bodies that are received where they stay: whole, in order, and no byte of what follows them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from edge_agent.server.apps import data_app
from edge_agent.server.bodies import Bodies
from edge_agent.server.cycle import Cycle
from edge_agent.server.listeners import HttpServer, listen
from edge_agent.server.reading import HEAD_BYTES, Incoming, Reader
from tests.agent.server.asgi import ask, data, metrics
from tests.agent.server.by_hand import HTTPTOOLS, LIVE, Client, infer
from tests.agent.server.fakes import FakeService, local

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


def test_who_is_refused_keeps_no_memory(run: Callable[[Any], Any], folder: Path) -> None:
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


def test_a_header_of_two_lines_is_never_sent() -> None:
    written: list[bytes] = []

    class Transport:
        write = written.append

        def is_closing(self) -> bool:
            return False

    facts: dict[str, Any] = dict.fromkeys(
        ("flow", "logger", "access_logger", "access_log", "message_event", "on_response")
    )
    facts["flow"] = FlowControl(Transport())  # type: ignore[arg-type]
    cycle = Cycle(
        scope={"method": "GET"},  # type: ignore[typeddict-item]
        transport=Transport(),  # type: ignore[arg-type]
        default_headers=[],
        expect_100_continue=False,
        keep_alive=True,
        **facts,
    )
    fields = [(b"content-length", b"0"), (b"x-request-id", b"a\r\nset-cookie: b")]
    with pytest.raises(RuntimeError, match="more than one line"):
        asyncio.run(cycle.send({"type": "http.response.start", "status": 200, "headers": fields}))
    assert written == []


def test_requests_with_the_same_head_are_about_their_own_tensors_and_models() -> None:
    tensor: dict[str, Any] = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": 8}
    head = json.dumps({"inputs": [tensor], "outputs": [{"name": "y"}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    service = FakeService()

    async def scenario() -> list[int]:
        app, asked = data(service), []
        for model, values in (
            ("batched", b"12345678"),
            ("batched", b"abcdefgh"),
            ("net", b"8" * 8),
        ):
            path = f"/v2/models/demo/{model}/infer"
            asked.append((await ask(app, "POST", path, head + values, headers)).status)
        return asked

    assert asyncio.run(scenario()) == [200, 200, 400]
    assert [bytes(c.query.tensors[0].data) for c in service.calls] == [b"12345678", b"abcdefgh"]


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
    assert (incoming.piece, incoming.missing, heard.pieces) == (bytearray(b"abcd"), 3, 1)
    incoming.begin(bytearray(), incoming.missing, 4)
    assert give(reader, b"efgNEXT") == 3
    assert (incoming.piece, incoming.missing, heard.pieces) == (bytearray(b"efg"), 0, 2)
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
