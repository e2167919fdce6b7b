"""Real sockets: with both of uvicorn's protocols and both event loops."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from edge_agent.serve_config import TcpConfig
from edge_agent.server import sockets
from edge_agent.server.listeners import HttpServer, Listener, listen
from tests.agent.server.asgi import data
from tests.agent.server.by_hand import INFER, LIVE, Client, Served, infer, served
from tests.agent.server.fakes import FakeService


def test_it_answers_and_knows_its_peer(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            assert (await client.ask(LIVE))[0] == 200
            status, headers, _ = await client.ask(*infer())
            assert status == 200
            assert {"server", "date"}.isdisjoint(headers)
            assert one.service.calls[0].tenant == f"uid:{os.geteuid()}"
            client.close()

    run(scenario())


@pytest.mark.parametrize("size", [100, 70_000, 1_100_000, 3_000_000])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_bodies_of_all_sizes_arrive_whole(
    kind: str, run: Any, folder: Path, size: int, is_chunked: bool
) -> None:
    body = INFER + b" " * size

    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            for _ in range(2):
                if is_chunked:
                    head = infer()[0].rpartition("\n")[0] + "\nTransfer-Encoding: chunked"
                    client.send(head, b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
                else:
                    client.send(*infer(body))
                assert (await client.receive())[0] == 200
            client.close()

    run(scenario())


def test_a_client_that_waits_for_permission_gets_it(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.send(infer(more="\nExpect: 100-continue")[0])
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            client.writer.write(INFER)
            assert (await client.receive())[0] == 200
            client.close()

            client = await one.connect()
            head = "POST /nowhere HTTP/1.1\nHost: x\nContent-Length: 5\nExpect: 100-continue"
            status, headers, _ = await client.ask(head)
            assert (status, headers["connection"]) == (404, "close")
            assert await client.ended()
            client.close()

    run(scenario())


def test_a_client_that_goes_away_cancels_its_call(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            client = await one.connect()
            client.send(*infer(INFER + b" " * 100_000))
            await one.service.entered.wait()
            client.close()
            await one.service.cancelled.wait()
            again = await one.connect()
            assert (await again.ask(LIVE))[0] == 200
            again.close()

    run(scenario())


def test_stop_lets_calls_finish_and_takes_no_more(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            busy, idle = await one.connect(), await one.connect()
            assert (await idle.ask(LIVE))[0] == 200
            busy.send(*infer())
            await one.service.entered.wait()
            assert one.server.in_flight == 1
            stopping = asyncio.create_task(one.server.stop(30.0))
            assert await idle.ended()
            assert not one.path.exists()
            with pytest.raises(FileNotFoundError):
                await one.connect()
            one.service.gate.set()
            status, headers, _ = await busy.receive()
            assert (status, headers["connection"]) == (200, "close")
            await stopping
            busy.close()
            idle.close()

    run(scenario())


def test_calls_that_outlast_the_drain_are_told_so(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            client = await one.connect()
            client.send(*infer())
            await one.service.entered.wait()
            await one.server.stop(0.01)
            status, _, body = await client.receive()
            assert status == 503
            assert b"StoppingError" in body
            assert one.service.cancelled.is_set()
            client.close()

    run(scenario())


def test_too_many_connections_are_told_so(kind: str, run: Any, folder: Path) -> None:
    refusals: list[tuple[int, str]] = []

    def refused(status: int, kind: str) -> None:
        refusals.append((status, kind))

    async def scenario() -> None:
        async with served(folder, max_connections=1, refused=refused) as one:
            first = await one.connect()
            assert (await first.ask(LIVE))[0] == 200
            second = await one.connect()
            status, headers, _ = await second.receive()
            assert (status, headers["retry-after"]) == (503, "1")
            assert await second.ended()
            assert (await first.ask(LIVE))[0] == 200
            first.close()
            second.close()
        assert refusals == [(503, "HttpError")]

    run(scenario())


def test_strangers_on_one_door_dont_shut_another(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        app = data(FakeService())
        network = Listener(app, sockets.tcp_socket(TcpConfig(port=0)))
        local = listen(app, folder / "data.sock")
        server = HttpServer([network, local], max_connections=1)
        await server.start()
        try:
            address = network.socket.getsockname()[:2]
            first = Client(*await asyncio.open_connection(*address))
            second = Client(*await asyncio.open_connection(*address))
            assert (await second.receive())[0] == 503
            mine = Client(*await asyncio.open_unix_connection(str(local.path)))
            assert (await mine.ask(LIVE))[0] == 200
            for one in (first, second, mine):
                one.close()
        finally:
            await server.stop(0.0)

    run(scenario())


@pytest.mark.parametrize("begun", [b"", b"GET /v2 HTTP/1.1\r\nHost: x\r\n"])
def test_a_stranger_has_little_time_for_a_first_request(kind: str, run: Any, begun: bytes) -> None:
    async def scenario() -> None:
        network = Listener(data(FakeService()), sockets.tcp_socket(TcpConfig(port=0)))
        server = HttpServer([network], 8, first_s=0.01)
        await server.start()
        try:
            client = Client(*await asyncio.open_connection(*network.socket.getsockname()[:2]))
            client.writer.write(begun)
            assert await client.ended()
            client.close()
        finally:
            await server.stop(0.0)

    run(scenario())


def test_malformed_requests_arent_logged(
    kind: str, run: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    form = "POST /infer/acme/colour HTTP/1.1\nHost: x\nContent-Length: 8\nContent-Type: "

    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head = form + "multipart/form-data; boundary=b"
            assert (await client.ask(head, b"--b\r\n\x00: "))[0] == 400
            client.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            assert (await client.receive())[0] == 400
            client.close()

    run(scenario())
    assert not caplog.records


LONG = b"""{"inputs": [{"name": "x", "shape": [1, 500000], "datatype": "FP32", "data": [1]}],
 "parameters": {"binary_data_output": true}}"""


@pytest.mark.parametrize(
    "requests", [[infer(LONG)], [("GET /openapi.json HTTP/1.1\nHost: x", b"")] * 100]
)
def test_who_reads_no_replies_loses_the_connection(
    kind: str,
    run: Any,
    folder: Path,
    requests: list[tuple[str, bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with served(folder, max_connections=1, idle_s=0.01) as one:
            one.service.value = lambda *_: 0.0
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.connect(str(one.path))
                for head, body in requests:
                    deaf.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
                async with asyncio.timeout(20):
                    await others_get_in(one)

    run(scenario())
    assert not caplog.records


async def others_get_in(one: Served) -> None:
    while True:
        client = await one.connect()
        try:
            if (await client.ask(LIVE))[0] == 200:
                return
        except (asyncio.IncompleteReadError, ConnectionError):
            continue  # refused, or idle for too long before it asked
        finally:
            client.close()


def test_who_goes_away_is_no_fault(
    kind: str, run: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            client = await one.connect()
            for _ in range(3):
                client.send(*infer())
            await one.service.entered.wait()
            client.close()
            await one.service.cancelled.wait()

    run(scenario())
    assert not caplog.records


@pytest.mark.parametrize("begun", [b"", b"GET /v2 HTT", b"GET /v2 HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_that_doesnt_get_on_is_closed(
    kind: str, run: Any, folder: Path, begun: bytes
) -> None:
    async def scenario() -> None:
        async with served(folder, idle_s=0.01) as one:
            client = await one.connect()
            client.writer.write(begun)
            assert await client.ended()
            client.close()

    run(scenario())


def test_a_call_may_take_longer_than_idleness(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder, idle_s=0.3) as one:  # time enough to begin
            one.service.gate = asyncio.Event()
            client = await one.connect()
            client.send(*infer())
            await one.service.entered.wait()
            asyncio.get_running_loop().call_later(1.0, one.service.gate.set)
            assert (await client.receive())[0] == 200
            client.close()

    run(scenario())
