"""What errors become."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from starlette.routing import Route

from edge_agent import errors, tensors
from edge_agent.description import TensorSpec
from edge_agent.serve_config import ServeConfig
from edge_agent.server import errors as server
from edge_agent.server import failures, routes
from edge_agent.server.admin_routes import Reload
from edge_agent.server.apps import admin_app, bodies
from edge_agent.server.auth import PEER
from edge_agent.server.replies import Message
from edge_signing import errors as signing
from tests.agent.server.asgi import admin, asked, data, metrics
from tests.agent.server.fakes import FakeService, local

PLACE = "/var/lib/edge-agent/bundles/x"
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
    (errors.ConfigError("x"), 409),
    (errors.StoreError("x"), 500),
    (errors.ThresholdError("x"), 500),
    (signing.NotTrusted("x"), 403),
    (signing.BundleChanged("x"), 403),
    (signing.BundleUnreadable("x"), 500),
    (signing.KeyringError("x"), 409),
    (OSError(13, "Permission denied", "/etc/shadow"), 500),
    (MemoryError(), 500),
]


KINDS: list[type[errors.AgentError | signing.SigningError]] = [
    kind
    for module in (errors, server, signing)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.AgentError | signing.SigningError)
    and kind.__module__ == module.__name__
]
# Their sentences are about the request or the moment.
FOR_CALLERS = {
    errors.BadInputError,
    errors.ImageError,
    errors.TensorError,
    errors.ModelNotFoundError,
    errors.OverloadedError,
    errors.DeadlineExceededError,
    *(kind for kind in KINDS if kind.__module__ == server.__name__),
} - {server.ClientGoneError}


def made(kind: type[errors.AgentError | signing.SigningError], message: str) -> Exception:
    """An error of some kind with all that it can carry."""
    error = kind.__new__(kind, message)
    vars(error).update(message=message, path=PLACE, hint=f"look into {PLACE}", line=1)
    vars(error).update(retry_after_s=1.0, is_callers_share=False, allowed=("GET",))
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_reasons_are_told_to_the_owner_and_to_others_only_where_they_are_theirs(
    kind: type[errors.AgentError | signing.SigningError],
) -> None:
    reason = "key 445867e9de514e7c was revoked"
    others, owner = (failures.reply(made(kind, reason), "id", who).body for who in (False, True))
    assert json.loads(others)["kind"] == json.loads(owner)["kind"] == kind.__name__
    assert reason.encode() in owner
    assert PLACE.encode() in owner
    assert (reason.encode() in others) == (kind in FOR_CALLERS)
    if kind not in FOR_CALLERS:
        assert PLACE.encode() not in others
        assert "the owner of this machine is told why" in json.loads(others)["error"]


@pytest.mark.parametrize(("error", "status"), CASES)
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    assert failures.status(error) == status
    assert failures.reply(error, "id", is_admin=False).status == status


def test_every_error_of_the_agent_is_in_the_table() -> None:
    known = {type(error) for error, _ in CASES}
    leaves = {kind for kind in KINDS if issubclass(kind, errors.AgentError)}
    bases = {errors.AgentError, errors.UnavailableError, server.ClientGoneError}
    assert leaves - known == bases


@pytest.mark.parametrize(("after", "told"), [(0.0, "1"), (0.2, "1"), (1.0, "1"), (1.1, "2")])
def test_when_to_come_again_is_in_whole_seconds(after: float, told: str) -> None:
    reply = failures.reply(errors.OverloadedError("x", retry_after_s=after), "id", False)
    assert dict(reply.headers)[b"retry-after"] == told.encode()


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreError("can't be read", path=PLACE, hint=f"look into {PLACE}"),
        errors.ModelFileError("is odd", path=PLACE, hint=f"look into {PLACE}"),
        errors.DescriptionError("is odd", path=PLACE, hint=f"look into {PLACE}"),
        errors.WorkerFailedError("crashed", path=PLACE, hint=f"see {PLACE}"),
        signing.BundleChanged("differs", path=PLACE),
        OSError(5, "Input/output error", PLACE),
        errors.ModelNotReadyError(f"is not ready: {PLACE}: was revoked", hint=f"see {PLACE}"),
        errors.EngineFailedError(f"no file {PLACE}"),
        signing.NotTrusted(f"{PLACE} has no signature"),
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


@pytest.mark.parametrize("is_admin", [False, True])
def test_a_tensor_that_is_wrong_is_told_in_the_protocols_words(is_admin: bool) -> None:
    spec = TensorSpec(name="uint8", dtype="float32", shape=(1, 2))
    with pytest.raises(errors.TensorError) as caught:
        tensors.check_form("uint8", (1, 2), spec, "the request")
    told = json.loads(failures.reply(caught.value, "id", is_admin).body)
    assert told["error"].removeprefix("the request: ") == "the input 'uint8' takes FP32, not UINT8"
    assert "hint" not in told


def test_a_configuration_that_cant_be_used_is_a_conflict() -> None:
    async def reload() -> list[str]:
        raise errors.ConfigError("serve.tcp has no tokens", path="/etc/edge-agent/config.toml")

    again = Route(routes.RELOAD, endpoint=Reload(reload), methods=None)
    app = admin_app(FakeService(), bodies(ServeConfig()), local(), metrics, [again])
    got = asked(app, "POST", routes.RELOAD)
    assert (got.status, got.json()["kind"]) == (409, "ConfigError")
    assert got.json()["error"].startswith("/etc/edge-agent/config.toml: ")
    documented = asked(app, "GET", "/openapi.json").json()["paths"][routes.RELOAD]["post"][
        "responses"
    ]
    assert "409" in documented


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
