"""Bodies are bounded: each, all together, unpacked, and in time."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable, Sequence

import msgspec
import pytest

from edge_agent.errors import BadInputError, OverloadedError
from edge_agent.serve_config import ServeConfig
from edge_agent.server import json_bodies
from edge_agent.server.auth import Caller
from edge_agent.server.bodies import Bodies
from edge_agent.server.codings import pack
from edge_agent.server.errors import BodyTooLargeError, BodyTooSlowError, ClientGoneError
from edge_agent.server.exchange import Exchange
from edge_agent.server.replies import BINARY, Message, Reply
from tests.agent.server.asgi import ask, asked, data
from tests.agent.server.fakes import FakeService

PATH = "/v2/models/demo/open/infer"
MIB = 1024 * 1024


def exchange(pieces: Sequence[bytes], headers: dict[bytes, bytes] | None = None) -> Exchange:
    """A request whose body comes in pieces; after them the client goes away."""
    left = list(pieces)

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    made = Exchange({}, receive, headers or {})
    made.caller = Caller("uid:1")
    return made


def read(bodies: Bodies, one: Exchange) -> bytes:
    return bytes(asyncio.run(bodies.read(one)))


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("pieces", [[b"abc"], [b"a", b"", b"bc"], [b""], [bytes(5 * MIB), b"x"]])
def test_a_body_is_what_its_pieces_are(pieces: list[bytes], declared: bool) -> None:
    whole = b"".join(pieces)
    headers = {b"content-length": str(len(whole)).encode()} if declared else {}
    one = exchange(pieces, headers)
    bodies = Bodies(6 * MIB, 6 * MIB)
    assert read(bodies, one) == whole
    assert one.held == len(whole)
    assert one.is_read


@pytest.mark.parametrize(
    ("pieces", "headers"),
    [
        ([b"12345"], {b"content-length": b"5"}),
        ([b"12345"], {}),
        ([b"12", b"34", b"5"], {}),
        ([], {b"content-length": b"9" * 40}),
        ([], {b"content-length": b"0" * 5000 + b"5"}),
    ],
)
def test_a_body_that_is_too_large_is_refused(
    pieces: list[bytes], headers: dict[bytes, bytes]
) -> None:
    with pytest.raises(BodyTooLargeError):
        read(Bodies(4, 100), exchange(pieces, headers))


def test_a_client_that_breaks_off_has_no_answer() -> None:
    with pytest.raises(ClientGoneError):
        read(Bodies(100, 100), exchange([], {b"content-length": b"5"}))


def test_bodies_are_bounded_together_until_released() -> None:
    bodies = Bodies(4, 6)
    first, second, third = (exchange([b"1234"]) for _ in range(3))
    read(bodies, first)
    with pytest.raises(OverloadedError):
        read(bodies, second)
    bodies.release(first)
    bodies.release(second)
    assert read(bodies, third) == b"1234"


def test_a_released_request_frees_what_it_held() -> None:
    app = data(FakeService(), ServeConfig(max_request_mib=1, max_queued_mib=1))
    document = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    body = json.dumps(document).encode() + b" " * (600 * 1024)

    async def scenario() -> list[int]:
        return [(await ask(app, "POST", PATH, body)).status for _ in range(4)]

    assert asyncio.run(scenario()) == [200] * 4


def test_a_body_that_never_ends_is_given_up() -> None:
    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    one = Exchange({}, receive, {b"content-length": b"5"})
    with pytest.raises(BodyTooSlowError):
        asyncio.run(Bodies(100, 100, timeout_s=0.01).read(one))


def slow(begun: int) -> tuple[Exchange, asyncio.Event]:
    """A request of which so many MiB come at once, and the rest when it is told."""
    pieces, told = [bytes(begun * MIB), b"rest"], asyncio.Event()

    async def receive() -> Message:
        if len(pieces) == 1:
            await told.wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    made = Exchange({}, receive, {})
    made.caller = Caller("uid:1")
    return made, told


def test_a_large_body_gets_on_while_memory_is_short() -> None:
    bodies = Bodies(8 * MIB, 8 * MIB, look_s=0.01)
    with pytest.raises(BodyTooSlowError, match="too slowly"):
        asyncio.run(bodies.read(slow(5)[0]))


@pytest.mark.parametrize(("begun", "limit"), [(5, 64), (3, 5)])
def test_otherwise_it_may_take_its_time(begun: int, limit: int) -> None:
    async def scenario() -> int:
        one, told = slow(begun)
        asyncio.get_running_loop().call_later(0.05, told.set)
        return len(await Bodies(min(8, limit) * MIB, limit * MIB, look_s=0.01).read(one))

    assert asyncio.run(scenario()) == begun * MIB + 4


@pytest.mark.parametrize("coding", ["gzip", "deflate", "GZIP", "identity"])
def test_packed_requests_are_unpacked(coding: str) -> None:
    service = FakeService()
    document = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    plain = json.dumps(document).encode()
    ways: dict[str, Callable[[bytes], bytes]]
    ways = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
    packed = ways[coding.lower()]
    got = asked(data(service), "POST", PATH, packed(plain), {"Content-Encoding": coding})
    assert got.status == 200
    assert service.calls[0].query.tensors[0].shape == (1, 1)


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (gzip.compress(bytes(2 * MIB), mtime=0), "gzip", 413),
        (zlib.compress(bytes(2 * MIB)), "deflate", 413),
        (gzip.compress(b"{}", mtime=0)[:-3], "gzip", 400),
        (gzip.compress(b"{}", mtime=0) + b"more", "gzip", 400),
        (b"plain", "gzip", 400),
        (b"", "deflate", 400),
        (b"{}", "br", 415),
        (b"{}", "gzip, gzip", 415),
    ],
)
def test_bombs_and_damage_are_refused(body: bytes, coding: str, status: int) -> None:
    app = data(FakeService(), ServeConfig(max_request_mib=1))
    assert asked(app, "POST", PATH, body, {"Content-Encoding": coding}).status == status


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"deflate", b"deflate"),
        (b"br, gzip;q=0.5, deflate;q=0.8", b"deflate"),
        (b"gzip;q=0", None),
        (b"identity", None),
        (b"gzip;q=x", None),
    ],
)
@pytest.mark.parametrize("size", [5000, 100_000])
def test_replies_are_packed_as_the_client_likes(
    accepted: bytes, coding: bytes | None, size: int
) -> None:
    plain = bytes(size)
    reply = Reply(plain)
    asyncio.run(pack(reply, accepted))
    assert dict(reply.headers).get(b"content-encoding") == coding
    ways: dict[bytes | None, Callable[[bytes], bytes]]
    ways = {None: bytes, b"gzip": gzip.decompress, b"deflate": zlib.decompress}
    assert ways[coding](reply.body) == plain


def test_small_replies_and_those_on_this_machine_arent_packed() -> None:
    small = Reply(bytes(100))
    asyncio.run(pack(small, b"gzip"))
    assert small.body == bytes(100)
    document = {"inputs": [{"name": "x", "shape": [1, 999], "datatype": "FP32", "data": []}]}
    body = json.dumps(document).encode()
    got = asked(data(FakeService()), "POST", PATH, body, {"Accept-Encoding": "gzip"})
    assert "content-encoding" not in got.headers


def test_tensors_as_bytes_arent_packed() -> None:
    reply = Reply(bytes(5000), content_type=BINARY)
    asyncio.run(pack(reply, b"gzip"))
    assert reply == Reply(bytes(5000), content_type=BINARY)


def test_packing_a_long_reply_doesnt_hold_up_others() -> None:
    async def scenario() -> None:
        packing = asyncio.create_task(pack(Reply(bytes(100_000)), b"gzip"))
        await asyncio.sleep(0)
        assert not packing.done()
        await packing

    asyncio.run(scenario())


def test_json_of_too_many_values_is_refused_before_it_is_read() -> None:
    body = b'{"instances": [' + b"1," * (2 * MIB) + b"1]}"
    got = asked(data(FakeService()), "POST", "/v1/models/demo/open:predict", body)
    assert got.status == 400
    assert "values" in got.json()["error"]


def test_json_of_too_many_names_is_refused_before_it_is_read() -> None:
    names = b",".join(b'"%d":1' % number for number in range(70_000))
    for body in (b'{"inputs": [{%s}]}' % names, b'{"instances": [{%s}]}' % names):
        with pytest.raises(BadInputError, match="names"):
            json_bodies.read(msgspec.json.Decoder(dict[str, msgspec.Raw]), body)
