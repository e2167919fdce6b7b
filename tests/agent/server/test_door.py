"""What happens before a model is asked: counting, logging, and whose bytes are held."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import Any

import pytest

from edge_agent.calls import Call
from edge_agent.errors import BadInputError, OverloadedError
from edge_agent.serve_config import ServeConfig, TcpConfig
from edge_agent.server import json_bodies
from edge_agent.server.apps import bodies, data_app
from edge_agent.server.auth import Caller, NetworkAccess, Tenants
from edge_agent.server.bodies import Bodies
from edge_agent.server.exchange import Exchange
from edge_agent.server.replies import App, Message
from edge_agent.server.tokens import Tokens
from edge_agent.telemetry import logs
from edge_agent.telemetry.refusals import Refusals
from tests.agent.server.asgi import ask, asked, data, metrics
from tests.agent.server.fakes import FakeService, local

INFER = "/v2/models/demo/open/infer"
DOCUMENT = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
BODY = json.dumps(DOCUMENT).encode()
KIB = 1024


def counted(service: FakeService, refusals: Counter[tuple[int, str]]) -> App:
    def refused(status: int, kind: str) -> None:
        refusals[status, kind] += 1

    config = ServeConfig(max_request_mib=1)
    return data_app(service, bodies(config), local(), metrics, refused)


@pytest.mark.parametrize(
    ("path", "body", "peer", "refusal"),
    [
        (INFER, BODY, None, (401, "NotAuthenticatedError")),
        (INFER, bytes(1025 * KIB), "uid:1", (413, "BodyTooLargeError")),
        (INFER, b"{", "uid:1", (400, "BadInputError")),
        ("/v2/models/none/infer", BODY, "uid:1", (404, "ModelNotFoundError")),
        ("/nowhere", b"", "uid:1", (404, "RouteNotFoundError")),
        ("/v2", b"", "uid:1", (405, "MethodError")),
    ],
)
def test_what_is_refused_at_the_door_is_counted(
    path: str, body: bytes, peer: str | None, refusal: tuple[int, str]
) -> None:
    refusals: Counter[tuple[int, str]] = Counter()
    got = asked(counted(FakeService(), refusals), "POST", path, body, peer=peer)
    assert (got.status, got.json()["kind"]) == refusal
    assert refusals == {refusal: 1}


def test_what_a_model_refuses_is_counted_there() -> None:
    service, refusals = FakeService(), Counter[tuple[int, str]]()
    app = counted(service, refusals)
    assert asked(app, "POST", INFER, BODY).status == 200
    service.error = BadInputError("x")
    assert asked(app, "POST", INFER, BODY).status == 400
    assert not refusals


def test_refusals_become_a_metric() -> None:
    refusals = Refusals()
    for _ in range(2):
        refusals.count(401, "NotAuthenticatedError")
    (family,) = refusals.collect()
    (sample,) = family.samples
    assert sample.name == "edge_agent_refusals_total"
    assert sample.labels == {"status": "401", "kind": "NotAuthenticatedError"}
    assert sample.value == 2


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 401), ("rebound", 421), ("", 421)])
def test_who_isnt_let_in_doesnt_keep_the_connection(host: str, status: int) -> None:
    access = NetworkAccess(TcpConfig(port=0), Tokens, Tenants(dict))
    app = data_app(FakeService(), bodies(ServeConfig()), access, metrics)
    got = asked(app, "GET", "/v2", headers={"Host": host}, peer=None)
    assert (got.status, got.headers["connection"]) == (status, "close")


def test_who_is_let_in_keeps_it() -> None:
    assert "connection" not in asked(data(FakeService()), "GET", "/nowhere").headers


class Naming(FakeService):
    """Notes under which request the log is written while a model is asked."""

    named = ""

    async def infer(self, call: Call) -> Any:
        self.named = logs.REQUEST_ID.get()
        return await super().infer(call)


def test_at_debug_each_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    service = Naming()
    with caplog.at_level(logging.DEBUG, "edge_agent.server"):
        got = asked(data(service), "POST", INFER, BODY, {"X-Request-ID": "id-7"})
        asked(data(service), "GET", "/v2", peer=None)
    assert got.status == 200
    assert service.named == "id-7"
    first, second = (vars(one) for one in caplog.records)
    assert (first["msg"], first["status"], first["tenant"]) == ("request", 200, "uid:1000")
    assert (first["operation"], first["model"]) == ("/v2/models/{name}/infer", "demo/open")
    assert first["ms"] >= 0
    assert (second["status"], second["tenant"]) == (401, None)


def test_otherwise_none_is(caplog: pytest.LogCaptureFixture) -> None:
    service = Naming()
    with caplog.at_level(logging.INFO, "edge_agent.server"):
        assert asked(data(service), "POST", INFER, BODY).status == 200
    assert not caplog.records
    assert service.named == ""


def test_what_a_queue_counts_isnt_held_at_the_door() -> None:
    async def scenario() -> list[int]:
        service = FakeService()
        service.gate = asyncio.Event()
        app = data(service, ServeConfig(max_request_mib=1, max_queued_mib=1))
        large = BODY + b" " * (600 * KIB)
        asking = [asyncio.create_task(ask(app, "POST", INFER, large)) for _ in range(3)]
        while len(service.calls) < 3 and not any(one.done() for one in asking):
            await asyncio.sleep(0)
        service.gate.set()
        return [(await one).status for one in asking]

    assert asyncio.run(scenario()) == [200] * 3


def of(tenant: str, body: bytes) -> Exchange:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    made = Exchange({}, receive, {})
    made.caller = Caller(tenant)
    return made


def test_no_tenant_holds_more_than_it_leaves_free() -> None:
    async def scenario() -> None:
        held = Bodies(4, 16)
        greedy = [of("uid:1", b"1234") for _ in range(3)]
        for one in greedy[:2]:
            await held.read(one)
        with pytest.raises(OverloadedError) as caught:
            await held.read(greedy[2])
        assert caught.value.is_callers_share
        for number in (2, 3):  # however many have come, there is room for one more
            assert await held.read(of(f"uid:{number}", b"12")) == b"12"
        with pytest.raises(OverloadedError) as caught:
            await held.read(of("uid:4", b"123"))
        assert not caught.value.is_callers_share
        assert await held.read(of("uid:4", b"1")) == b"1"
        held.release(greedy[0])
        held.release(greedy[0])
        assert await held.read(of("uid:2", b"12")) == b"12"

    asyncio.run(scenario())


def test_who_is_alone_may_send_the_largest_body() -> None:
    assert asyncio.run(Bodies(4, 4).read(of("uid:1", b"1234"))) == b"1234"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/demo/pair/infer", DOCUMENT),
        ("/v1/models/demo/pair:predict", {"instances": [{"a": [1, 2], "b": [3]}]}),
        ("/v1/models/demo/pair:predict", {"instances": [{"a": [1, 2], "b": [3]}] * 2}),
    ],
)
def test_answers_that_are_too_large_for_json_are_refused(
    path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = 3 * len(body.get("instances", "1"))
    sent = json.dumps(body).encode()
    monkeypatch.setattr(json_bodies, "MAX_VALUES", values)
    assert asked(data(FakeService()), "POST", path, sent).status == 200
    monkeypatch.setattr(json_bodies, "MAX_VALUES", values - 1)
    got = asked(data(FakeService()), "POST", path, sent)
    assert got.status == 400
    assert "binary_data_output" in got.json()["hint"]


def test_as_bytes_answers_may_be_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_bodies, "MAX_VALUES", 1)
    wanted = json.dumps(DOCUMENT | {"parameters": {"binary_data_output": True}}).encode()
    assert asked(data(FakeService()), "POST", INFER, wanted).status == 200
    assert asked(data(FakeService()), "POST", INFER, BODY).status == 400
