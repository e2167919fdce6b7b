"""Where a request ends and the next one begins, whoever sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge_agent.server import protocols
from tests.agent.server.by_hand import INFER, LIVE, infer, served

CHUNKED = "POST /v2/models/demo/open/infer HTTP/1.1\nHost: x\nTransfer-Encoding: chunked"
LEAD = b"%x\r\n%b\r\n" % (len(INFER), INFER)


@pytest.mark.parametrize("length", ["9" * 5000, "0" * 5000 + "5"])
def test_lengths_of_thousands_of_digits_are_refused(
    kind: str, run: Any, folder: Path, length: str
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head = f"POST /v2/models/demo/open/infer HTTP/1.1\nHost: x\nContent-Length: {length}"
            assert (await client.ask(head))[0] in (400, 413)
            client.close()

    run(scenario())


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_head_without_end_is_refused(kind: str, run: Any, folder: Path, is_whole: bool) -> None:
    if is_whole and kind == "h11":
        pytest.skip("h11 bounds what is incomplete; more than a read's worth can't be whole")

    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            long = "x" * (protocols.MAX_HEAD_BYTES + 1)
            client.writer.write(f"GET /v2 HTTP/1.1\r\nHost: x\r\nLong: {long}".encode())
            client.writer.write(b"\r\n\r\n" if is_whole else b"")
            status, headers, _ = await client.receive()
            assert status in (400, 431)
            assert headers["content-type"] == "application/json"
            client.close()

    run(scenario())


def test_what_is_no_http_is_told_so_in_json(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            status, headers, _ = await client.receive()
            assert (status, headers["content-type"]) == (400, "application/json")
            client.close()

    run(scenario())


def test_requests_in_a_row_are_answered_in_a_row(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.send(*infer())
            client.send(LIVE)
            client.send("HEAD /v2 HTTP/1.1\nHost: x\nConnection: close")
            assert (await client.receive())[2].startswith(b'{"model_name"')
            assert (await client.receive())[2] == b'{"live":true}'
            assert (await client.reader.read()).startswith(b"HTTP/1.1 200")
            client.close()

    run(scenario())


def test_who_asks_a_lot_at_once_is_read_no_faster_than_answered(run: Any, folder: Path) -> None:
    count, waiting = 4000, []

    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.writer.write(
                LIVE.replace("\n", "\r\n").encode().join([b"", b"\r\n\r\n"]) * count
            )
            for _ in range(count):
                assert (await client.receive())[0] == 200
                waiting.append(sum(len(made.pipeline) for made in one.server._connections()))
            client.close()

    run(scenario())
    assert 0 < max(waiting) < 1000  # what one read holds


@pytest.mark.parametrize(
    "endless",
    [
        LEAD + b"0\r\n" + b"A: b\r\n" * 20_000,
        LEAD + b"0\r\nA: " + b"b" * 100_000,
        LEAD + b"5;" + b"e" * 100_000,
    ],
    ids=["trailers", "a trailer", "an extension"],
)
def test_what_stands_around_chunks_has_an_end(run: Any, folder: Path, endless: bytes) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.send(CHUNKED, endless)
            assert (await client.receive())[0] == 431
            client.close()

    run(scenario())


def test_trailers_and_many_chunks_are_taken(kind: str, run: Any, folder: Path) -> None:
    each = b"".join(b"1;a=b\r\n%c\r\n" % one for one in INFER.ljust(10_000))

    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.send(CHUNKED, each + b"0\r\nA: b\r\n\r\n")
            assert (await client.receive())[0] == 200
            assert (await client.ask(LIVE))[0] == 200
            client.close()

    run(scenario())


def test_a_path_without_end_is_refused(run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            path = "x" * (protocols.MAX_HEAD_BYTES + 1000)
            client.send(f"GET /{path} HTTP/1.1\nHost: x")
            assert (await client.receive())[0] == 431
            client.close()

    run(scenario())


@pytest.mark.parametrize("codings", ["gzip, chunked", "gzip\nTransfer-Encoding: chunked", "odd"])
def test_other_codings_of_a_transfer_are_refused(
    kind: str, run: Any, folder: Path, codings: str
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            client.send(CHUNKED.replace("chunked", codings), LEAD + b"0\r\n\r\n")
            assert (await client.receive())[0] == 400
            assert await client.ended()
            client.close()

    run(scenario())


def test_white_space_behind_a_value_is_no_part_of_it(kind: str, run: Any, folder: Path) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            client = await one.connect()
            head, body = infer(more=f" \t\nInference-Header-Content-Length: {len(INFER)} ")
            assert (await client.ask(head, body))[0] == 200
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    "bad",
    [
        b"nonsense\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\n: x\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nA: " + b"x" * 2 * protocols.MAX_HEAD_BYTES + b"\r\n\r\n",
    ],
    ids=["no request", "no header", "long"],
)
def test_good_requests_are_answered_before_a_bad_one(
    kind: str, run: Any, folder: Path, bad: bytes
) -> None:
    async def scenario() -> None:
        async with served(folder) as one:
            one.service.gate = asyncio.Event()
            client = await one.connect()
            client.send(*infer())
            client.send(LIVE)
            client.writer.write(bad)
            await one.service.entered.wait()
            one.service.gate.set()
            assert (await client.receive())[2].startswith(b'{"model_name"')
            assert (await client.receive())[2] == b'{"live":true}'
            assert b"200 OK" not in await client.rest()
            client.close()

    run(scenario())
