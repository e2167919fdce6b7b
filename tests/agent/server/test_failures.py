"""What errors become."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from edge_agent import errors
from edge_agent.server import errors as server
from edge_agent.server import failures
from edge_agent.server.auth import PEER
from edge_agent.server.replies import Message
from edge_signing import errors as signing
from tests.agent.server.asgi import admin, asked, data
from tests.agent.server.fakes import FakeService

CASES: list[tuple[Exception, int]] = [
    (server.RouteNotFoundError("x"), 404),
    (server.MethodError("PUT", ("GET",)), 405),
    (server.BodyTooLargeError("x"), 413),
    (server.BodyTooSlowError("x"), 408),
    (server.BodyFormatError("x"), 415),
    (server.NotAuthenticatedError("x"), 401),
    (server.NotAllowedError("x"), 403),
    (server.WrongHostError("x"), 421),
    (server.StoppingError("x"), 503),
    (errors.BadInputError("x"), 400),
    (errors.ImageError("x"), 400),
    (errors.TensorError("x"), 400),
    (errors.DescriptionError("x"), 500),
    (errors.ModelFileError("x"), 500),
    (errors.ModelNotFoundError("x"), 404),
    (errors.ModelNotReadyError("x"), 503),
    (errors.EngineUnavailableError("x"), 503),
    (errors.EngineFailedError("x"), 500),
    (errors.GoldenMismatchError("x"), 503),
    (errors.OverloadedError("x", retry_after_s=1), 503),
    (errors.OverloadedError("x", retry_after_s=1, is_callers_share=True), 429),
    (errors.DeadlineExceededError("x"), 504),
    (errors.WorkerFailedError("x"), 500),
    (errors.MismatchError("x"), 403),
    (errors.ConfigError("x"), 500),
    (errors.StoreError("x"), 500),
    (errors.ThresholdError("x"), 500),
    (signing.NotTrusted("x"), 403),
    (signing.BundleChanged("x"), 403),
    (signing.BundleUnreadable("x"), 500),
    (signing.KeyringError("x"), 500),
    (OSError(13, "Permission denied", "/etc/shadow"), 500),
    (MemoryError(), 500),
]


@pytest.mark.parametrize(("error", "status"), CASES)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    assert failures.status(error) == status
    assert failures.reply(error, "id", is_admin=False).status == status


def test_every_error_of_the_agent_is_in_the_table() -> None:
    known = {type(error) for error, _ in CASES}
    leaves = {
        kind
        for module in (errors, server)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, errors.AgentError)
    }
    bases = {errors.AgentError, errors.UnavailableError, server.ClientGoneError}
    assert leaves - known == bases


@pytest.mark.parametrize(("after", "told"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.1, "2")])
def test_when_to_come_again_is_in_whole_seconds(after: float, told: str) -> None:
    reply = failures.reply(errors.OverloadedError("x", retry_after_s=after), "id", False)
    assert dict(reply.headers)[b"retry-after"] == told.encode()


PLACE = "/var/lib/edge-agent/bundles/x"


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreError("can't be read", path=PLACE, hint=f"look into {PLACE}"),
        errors.ModelFileError("is odd", path=PLACE, hint=f"look into {PLACE}"),
        errors.DescriptionError("is odd", path=PLACE, hint=f"look into {PLACE}"),
        errors.WorkerFailedError("crashed", path=PLACE, hint=f"see {PLACE}"),
        signing.BundleChanged("differs", path=PLACE),
        OSError(5, "Input/output error", PLACE),
        KeyError(PLACE),
    ],
)
def test_applications_learn_nothing_of_the_disk(error: Exception) -> None:
    service = FakeService()
    service.error = error
    body = json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
    ).encode()
    got = asked(data(service), "POST", "/v2/models/demo/open/infer", body)
    assert got.status >= 400
    assert PLACE.encode() not in got.body
    if isinstance(error, (errors.AgentError, signing.SigningError)):
        told = asked(admin(service), "POST", "/v2/models/demo/open/infer", body)
        assert PLACE in told.json()["error"]


def test_an_unexpected_error_is_logged_under_the_requests_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        reply = failures.reply(KeyError("secret"), "id-7", is_admin=True)
    assert json.loads(reply.body) == {"error": "a fault in the agent", "kind": "InternalError"}
    assert vars(caplog.records[0])["request_id"] == "id-7"


def test_names_of_strangers_cant_break_a_terminal() -> None:
    reply = failures.reply(errors.ModelNotFoundError("no \x1b[31m\u202e"), "id", False)
    assert json.loads(reply.body)["error"] == "no \\x1b[31m\\u202e"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v2/models/demo/net/infer", "POST"),
        ("DELETE", "/v2", "GET, HEAD"),
        ("POST", "/v2/models/demo/net", "GET, HEAD"),
        ("OPTIONS", "/infer/demo/net", "POST"),
        ("TRACE", "/metrics", "GET, HEAD"),
    ],
)
def test_another_method_is_refused_with_those_that_work(
    method: str, path: str, allowed: str
) -> None:
    got = asked(data(FakeService()), method, path)
    assert got.status == 405
    assert got.headers["allow"] == allowed


@pytest.mark.parametrize(
    "path", ["/v3", "/v2/models", "/infer", "/v1/models/a:explain", "/v2/logging", "/V2", "//v2"]
)
def test_there_is_nothing_elsewhere(path: str) -> None:
    got = asked(data(FakeService()), "GET", path)
    assert got.status == 404
    assert got.json()["kind"] == "RouteNotFoundError"


def test_a_reply_that_has_begun_is_followed_by_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            raise RuntimeError("the transport is closed")

    scope = {"method": "GET", "raw_path": b"/v2", "headers": [], "state": {PEER: "uid:1"}}

    async def scenario() -> None:
        await data(FakeService())(scope, receive, send)

    asyncio.run(scenario())
    assert sent == ["http.response.start", "http.response.body"]
    assert [one.msg for one in caplog.records] == ["reply_failed"]
