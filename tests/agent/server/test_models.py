"""What the server tells of itself and of models, and what only the admin socket changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from edge_agent import __version__
from edge_agent.errors import GoldenMismatchError
from edge_signing.errors import NotTrusted
from tests.agent.server.asgi import Got, admin, asked, data
from tests.agent.server.fakes import DIGEST, FakeService

WHY = "/var/lib/edge-agent/bundles/x: can't be read"


def get(path: str, service: FakeService | None = None) -> Got:
    return asked(data(service or FakeService()), "GET", path)


def broken() -> FakeService:
    """A service whose model demo/net can't be used."""
    service = FakeService()
    service.statuses = [
        structs.replace(one, state="UNAVAILABLE", reason=WHY) if one.ref.name == "demo/net" else one
        for one in service.statuses
    ]
    return service


def test_the_server_names_itself() -> None:
    for path in ("/v2", "/v2/"):
        document = get(path).json()
        assert (document["name"], document["version"]) == ("edge-agent", __version__)
        assert {"binary_tensor_data", "classification"} < set(document["extensions"])


def test_health() -> None:
    service = FakeService()
    assert get("/v2/health/live", service).json() == {"live": True}
    assert get("/v2/health/ready", service).json() == {"live": True, "ready": True}
    service.ready = False
    got = get("/v2/health/ready", service)
    assert (got.status, got.json()["ready"]) == (503, False)
    assert get("/v2/health/live", service).status == 200


def test_metadata_has_the_protocols_types_and_open_axes() -> None:
    document = get("/v2/models/demo/batched").json()
    assert document == {
        "name": "demo/batched",
        "versions": ["1.0.0"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    assert get("/v2/models/demo%2Fbatched/versions/1.0.0").json() == document


def test_the_configuration_has_whole_shapes() -> None:
    document = get("/v2/models/demo/pair/config").json()
    assert document["max_batch_size"] == 0
    assert document["input"][0] == {"name": "a", "data_type": "TYPE_FP32", "dims": [1, 2]}
    assert document["backend"] == "onnxruntime"


def test_statistics_of_one_and_all() -> None:
    (one,) = get("/v2/models/demo/net/stats").json()["model_stats"]
    assert one["name"] == "demo/net"
    assert (one["inference_count"], one["execution_count"], one["last_inference"]) == (2, 1, 5)
    assert one["inference_stats"]["compute_infer"] == {"count": 2, "ns": 3_000_000}
    assert one["batch_stats"] == []
    assert len(get("/v2/models/stats").json()["model_stats"]) == 5


def test_a_model_that_isnt_ready_doesnt_say_where_it_lies() -> None:
    service = broken()
    assert get("/v2/models/acme/colour/ready", service).json() == {
        "name": "acme/colour",
        "ready": True,
    }
    for path in ("/v2/models/demo/net/ready", "/v1/models/demo/net"):
        got = get(path, service)
        assert (got.status, got.json()["ready"]) == (503, False)
        assert b"/var/lib" not in got.body
        told = asked(admin(service), "GET", path)
        assert WHY in told.body.decode()
    assert get("/v2/models/demo/net", service).json()["versions"] == []


@pytest.mark.parametrize(
    "path",
    ["/v2/models/none", "/v2/models/none/ready", "/v2/models/none/config", "/v2/models/none/stats"],
)
def test_unknown_models_are_not_found(path: str) -> None:
    got = get(path)
    assert got.status == 404
    assert got.json()["kind"] == "ModelNotFoundError"


def index(service: FakeService, body: bytes = b"", is_admin: bool = False) -> Got:
    app = admin(service) if is_admin else data(service)
    return asked(app, "POST", "/v2/repository/index", body)


def test_the_index_lists_all_or_what_is_ready() -> None:
    service = broken()
    listed = index(service).json()
    assert len(listed) == 5
    assert listed[0] == {
        "name": "acme/colour",
        "version": "1.0.0",
        "state": "READY",
        "reason": "",
        "digest": DIGEST,
        "engine": "onnx",
        "live": True,
        "aliases": [],
    }
    assert len(index(service, b'{"ready": true}').json()) == 4
    assert len(index(service, b"{}").json()) == 5
    assert index(service, b'{"ready": 1}').status == 400
    assert b"/var/lib" not in index(service).body
    assert WHY in index(service, is_admin=True).body.decode()


def change(service: FakeService, what: str, document: Any = None, name: str = "demo/net") -> Got:
    body = b"" if document is None else json.dumps(document).encode()
    return asked(admin(service), "POST", f"/v2/repository/models/{name}/{what}", body)


def test_the_owner_loads_and_unloads() -> None:
    service = FakeService()
    assert change(service, "load").json()["state"] == "READY"
    assert change(service, "load", {"parameters": {"version": "1.0.0"}}).status == 200
    assert change(service, "load", name="demo%2Fnet@1.0.0").status == 200
    assert change(service, "unload", {"parameters": {"unload_dependents": True}}).json() == {}
    assert service.changes == [
        ("load", "demo/net", None),
        ("load", "demo/net", "1.0.0"),
        ("load", "demo/net", "1.0.0"),
        ("unload", "demo/net", None),
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        {"config": "{}"},
        {"file:1/model.onnx": "aGk="},
        {"version": 1},
        {"version": "2.0.0"},
    ],
)
def test_models_cant_be_changed_on_the_way_in(parameters: dict[str, Any]) -> None:
    service = FakeService()
    assert change(service, "load", {"parameters": parameters}, "demo/net@1.0.0").status == 400
    assert not service.changes


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotTrusted("no signature counts", path="/x"), 403),
        (GoldenMismatchError("answers wrongly"), 503),
    ],
)
def test_a_load_that_fails_tells_the_owner_why(error: Exception, status: int) -> None:
    service = FakeService()
    service.error = error
    got = change(service, "load")
    assert got.status == status
    assert got.json()["error"] == str(error)


@pytest.mark.parametrize("what", ["load", "unload"])
def test_applications_change_nothing(what: str) -> None:
    service = FakeService()
    got = asked(data(service), "POST", f"/v2/repository/models/demo/net/{what}", b"{}")
    assert got.status == 403
    assert "demo/net" in got.json()["hint"]
    assert not service.changes


def test_metrics_are_what_is_rendered() -> None:
    got = get("/metrics")
    assert got.body == b"up 1\n"
    assert got.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
