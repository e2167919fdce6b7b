"""Inference of protocol v2: JSON, binary tensors, and what of both is refused."""

from __future__ import annotations

import json
import struct
from typing import Any, get_args

import pytest

from edge_agent.calls import ITEM_BYTES, InputTensor, Priority
from edge_agent.description import DType
from edge_agent.errors import BadInputError, DeadlineExceededError
from edge_agent.server.datatypes import DATATYPES
from tests.agent.server.asgi import Got, asked, data
from tests.agent.server.fakes import BATCHED, FakeService, raw

PAIR = "/v2/models/demo/pair/infer"
A = struct.pack("<2f", 1.0, 2.0)
B = struct.pack("<f", 3.0)


def tensor(name: str, shape: list[Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": "FP32", **more}


def binary(name: str, shape: list[int], size: int, datatype: str = "FP32") -> dict[str, Any]:
    return {
        "name": name,
        "shape": shape,
        "datatype": datatype,
        "parameters": {"binary_data_size": size},
    }


PAIR_JSON = [tensor("a", [1, 2], data=[1, 2]), tensor("b", [1, 1], data=[[3]])]
PAIR_BINARY = [binary("a", [1, 2], 8), binary("b", [1, 1], 4)]


def post(
    document: dict[str, Any],
    tail: bytes = b"",
    path: str = PAIR,
    service: FakeService | None = None,
    **headers: Any,
) -> Got:
    body = json.dumps(document).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    if tail or "parameters" in str(document.get("inputs")):
        names.setdefault("inference-header-content-length", str(len(body)))
    return asked(data(service or FakeService()), "POST", path, body + tail, names)


def values(got: Got, output: int = 0) -> Any:
    return got.json()["outputs"][output]["data"]


def split(got: Got) -> tuple[Any, bytes]:
    length = int(got.headers["inference-header-content-length"])
    return json.loads(got.body[:length]), got.body[length:]


def test_json_goes_to_the_model_as_text_and_comes_back_as_numbers() -> None:
    service = FakeService()
    got = post({"id": "42", "inputs": PAIR_JSON}, service=service)
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    document = got.json()
    assert (document["model_name"], document["model_version"]) == ("demo/pair", "1.0.0")
    assert document["id"] == "42"
    assert document["outputs"] == [
        {"name": "sum", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 1.0]},
        {"name": "mean", "datatype": "FP32", "shape": [1, 1], "data": [0.0]},
    ]
    (call,) = service.calls
    assert [bytes(one.data) for one in call.query.tensors] == [b"[1, 2]", b"[[3]]"]
    assert all(one.is_json and one.dtype == "float32" for one in call.query.tensors)
    assert (call.query.wants, call.query.outputs) == ("outputs", ())
    assert (call.model, call.version, call.tenant) == ("demo/pair", None, "uid:1000")


def test_a_reply_has_no_id_where_the_request_had_none() -> None:
    assert "id" not in post({"inputs": PAIR_JSON}).json()


def test_binary_tensors_follow_the_json_in_its_order() -> None:
    service = FakeService()
    asked_for = {"inputs": PAIR_BINARY, "parameters": {"binary_data_output": True}}
    got = post(asked_for, A + B, service=service)
    assert got.status == 200
    assert got.headers["content-type"] == "application/octet-stream"
    document, tail = split(got)
    assert [one["parameters"] for one in document["outputs"]] == [
        {"binary_data_size": 8},
        {"binary_data_size": 4},
    ]
    assert tail == struct.pack("<3f", 0, 1, 0)
    (call,) = service.calls
    assert call.query.tensors == (
        InputTensor("a", "float32", (1, 2), memoryview(A)),
        InputTensor("b", "float32", (1, 1), memoryview(B)),
    )


def test_json_and_binary_inputs_mix() -> None:
    service = FakeService()
    mixed = [tensor("a", [1, 2], data=[1, 2]), binary("b", [1, 1], 4)]
    assert post({"inputs": mixed}, B, service=service).status == 200
    a, b = service.calls[0].query.tensors
    assert (a.is_json, bytes(a.data)) == (True, b"[1, 2]")
    assert (b.is_json, bytes(b.data)) == (False, B)


def test_each_output_says_how_it_is_wanted_and_in_which_order() -> None:
    service = FakeService()
    outputs = [{"name": "mean", "parameters": {"binary_data": False}}, {"name": "sum"}]
    got = post(
        {
            "inputs": PAIR_JSON,
            "outputs": outputs,
            "parameters": {"binary_data_output": True},
        },
        service=service,
    )
    document, tail = split(got)
    assert [one["name"] for one in document["outputs"]] == ["mean", "sum"]
    assert document["outputs"][0]["data"] == [0.0]
    assert tail == struct.pack("<2f", 0, 1)
    assert service.calls[0].query.outputs == ("mean", "sum")


def test_what_json_cant_express_becomes_null() -> None:
    service = FakeService()
    service.value = lambda _, at: (float("nan"), float("inf"))[at % 2]
    assert values(post({"inputs": PAIR_JSON}, service=service)) == [None, None]


def test_raw_bytes_are_the_only_input() -> None:
    service = FakeService()
    body = bytes(1 * 3 * 224 * 224 * 4)
    headers = {"Inference-Header-Content-Length": "0"}
    got = asked(data(service), "POST", "/v2/models/demo/net/infer", body, headers)
    assert got.status == 200
    _, tail = split(got)
    assert len(tail) == 4000
    assert service.calls[0].query.tensors[0].shape == (1, 3, 224, 224)


@pytest.mark.parametrize(
    ("model", "size", "shape"),
    [("demo/open", 20, (1, 5)), ("demo/batched", 24, (3, 2)), ("demo/both", 20, (1, 5))],
)
def test_the_open_axis_of_raw_bytes_follows_from_their_size(
    model: str, size: int, shape: tuple[int, ...]
) -> None:
    both = raw("demo/both", {"x": ("n", "length")}, {"y": ("n", "length")})
    service = FakeService((*FakeService().described, both))
    headers = {"Inference-Header-Content-Length": "0"}
    got = asked(data(service), "POST", f"/v2/models/{model}/infer", bytes(size), headers)
    assert got.status == 200
    assert service.calls[0].query.tensors[0].shape == shape


@pytest.mark.parametrize(
    ("model", "size"), [("demo/pair", 12), ("demo/open", 7), ("demo/net", 8), ("demo/wide", 8)]
)
def test_raw_bytes_that_fill_no_shape_are_refused(model: str, size: int) -> None:
    wide = raw("demo/wide", {"x": ("n", "h", "w")}, {"y": ("n", 1)})
    service = FakeService((*FakeService().described, wide))
    headers = {"Inference-Header-Content-Length": "0"}
    got = asked(data(service), "POST", f"/v2/models/{model}/infer", bytes(size), headers)
    assert got.status == 400
    assert not service.calls


REFUSED: list[tuple[dict[str, Any], bytes, str]] = [
    ({}, b"", "inputs"),
    ({"inputs": []}, b"", "inputs"),
    ({"inputs": "a"}, b"", "array"),
    ({"inputs": [{"name": "a", "shape": [1]}]}, b"", "datatype"),
    ({"inputs": [tensor("a", [1, 2])]}, b"", "neither data"),
    ({"inputs": [tensor("a", [1, 2], data=5)]}, b"", "array"),
    ({"inputs": [tensor("a", [1, 2], data=None)]}, b"", "array"),
    ({"inputs": [tensor("a", [1, -2], data=[1])]}, b"", "shape"),
    ({"inputs": [tensor("a", [1] * 9, data=[1])]}, b"", "shape"),
    ({"inputs": [tensor("a", [1, 2.5], data=[1])]}, b"", "shape"),
    ({"inputs": [{**tensor("a", [1], data=[1]), "datatype": "BF16"}]}, b"", "BF16"),
    ({"inputs": [{**tensor("a", [1], data=[1]), "datatype": "fp32"}]}, b"", "fp32"),
    ({"inputs": [PAIR_JSON[0], PAIR_JSON[0]]}, b"", "twice"),
    ({"inputs": PAIR_JSON, "outputs": [{"name": "none"}]}, b"", "no output"),
    ({"inputs": PAIR_JSON, "outputs": [{"name": "sum"}, {"name": "sum"}]}, b"", "twice"),
    ({"inputs": PAIR_BINARY}, A, "bytes"),
    ({"inputs": PAIR_BINARY}, A + B + b"x", "add up"),
    ({"inputs": [binary("a", [1, 2], 7)]}, A[:7], "takes 8 bytes"),
    ({"inputs": [{**PAIR_BINARY[0], "data": [1, 2]}]}, A, "both data"),
    ({"inputs": [{**PAIR_BINARY[0], "parameters": {"binary_data_size": -8}}]}, A, "binary"),
    ({"inputs": PAIR_JSON, "id": 5}, b"", "id"),
    ({"inputs": PAIR_JSON, "parameters": {"sequence_id": 5}}, b"", "sequences"),
    ({"inputs": PAIR_JSON, "parameters": {"sequence_start": True}}, b"", "sequences"),
    ({"inputs": PAIR_JSON, "parameters": {"priority": 5}}, b"", "priority"),
    ({"inputs": PAIR_JSON, "parameters": {"timeout": -1}}, b"", "timeout"),
    (
        {"inputs": [tensor("a", [1, 2], parameters={"shared_memory_region": "r"})]},
        b"",
        "shared memory",
    ),
    (
        {
            "inputs": PAIR_JSON,
            "outputs": [{"name": "sum", "parameters": {"shared_memory_region": "r"}}],
        },
        b"",
        "shared memory",
    ),
    (
        {"inputs": PAIR_JSON, "outputs": [{"name": "sum", "parameters": {"classification": 2}}]},
        b"",
        "holds no classes",
    ),
    (
        {"inputs": [{**PAIR_JSON[0], "datatype": "BYTES"}]},
        b"",
        "the input 'a' takes FP32, not BYTES",
    ),
    (
        {"inputs": [{**PAIR_JSON[0], "name": "image", "datatype": "BYTES"}]},
        b"",
        "the model has no input 'image'; it takes a, b",
    ),
]


@pytest.mark.parametrize(("document", "tail", "told"), REFUSED)
def test_what_breaks_the_protocol_never_reaches_a_model(
    document: dict[str, Any], tail: bytes, told: str
) -> None:
    service = FakeService()
    got = post(document, tail, service=service)
    assert got.status == 400
    assert told in got.json()["error"]
    assert not service.calls


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"inputs": ' + b"[" * 5000])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    got = asked(data(FakeService()), "POST", PAIR, body)
    assert got.status == 400


@pytest.mark.parametrize("length", ["x", "-1", "9", "9" * 30, "1.5"])
def test_a_wrong_length_of_the_json_is_refused(length: str) -> None:
    headers = {"Inference-Header-Content-Length": length}
    assert asked(data(FakeService()), "POST", PAIR, b"{}", headers).status == 400


def test_unknown_members_and_parameters_are_ignored() -> None:
    document = {
        "model_name": "x",
        "inputs": [{**PAIR_JSON[0], "parameters": {"mine": [1]}}, PAIR_JSON[1]],
        "outputs": [{"name": "sum", "parameters": {"mine": 1}}],
        "parameters": {"mine": {"a": 1}, "sequence_id": 0, "sequence_end": False},
    }
    body = json.dumps(document).encode()
    assert asked(data(FakeService()), "POST", PAIR, body).status == 200


@pytest.mark.parametrize(
    ("given", "header", "priority"),
    [
        (0, None, Priority.NORMAL),
        (1, None, Priority.CRITICAL),
        (4, None, Priority.BULK),
        (0, "high", Priority.HIGH),
        (4, "high", Priority.BULK),
    ],
)
def test_the_priority_of_the_body_wins_over_the_header(
    given: int, header: str | None, priority: Priority
) -> None:
    service = FakeService()
    headers: dict[str, Any] = {"edge_agent_priority": header} if header else {}
    post({"inputs": PAIR_JSON, "parameters": {"priority": given}}, service=service, **headers)
    assert service.calls[0].priority == priority


def test_the_shorter_of_both_timeouts_counts() -> None:
    service = FakeService()
    asked_for = {"inputs": PAIR_JSON, "parameters": {"timeout": 2_000_000}}
    post(asked_for, service=service, edge_agent_timeout_ms="3600000")
    post(asked_for, service=service, edge_agent_timeout_ms="1")
    post({"inputs": PAIR_JSON}, service=service)
    first, second, third = (call.deadline for call in service.calls)
    assert first is not None
    assert second is not None
    assert second < first < second + 100
    assert third is None


@pytest.mark.parametrize("shape", [[], [0, 2]])
def test_scalars_and_empty_tensors_are_exact(shape: list[int]) -> None:
    service = FakeService((raw("demo/scalar", {"x": ()}, {"y": (1,)}), BATCHED))
    path = "/v2/models/demo/scalar/infer" if not shape else "/v2/models/demo/batched/infer"
    size = 4 if not shape else 0
    got = post({"inputs": [binary("x", shape, size)]}, bytes(size), path, service)
    assert got.status == 200
    assert service.calls[0].query.tensors[0].shape == tuple(shape)


@pytest.mark.parametrize(
    ("error", "status"),
    [(BadInputError("no"), 400), (DeadlineExceededError("late"), 504)],
)
def test_an_error_of_the_model_becomes_its_status(error: Exception, status: int) -> None:
    service = FakeService()
    service.error = error
    assert post({"inputs": PAIR_JSON}, service=service).status == status


def test_a_version_in_the_path_reaches_the_model() -> None:
    service = FakeService()
    path = "/v2/models/demo%2Fpair/versions/1.0.0/infer"
    assert post({"inputs": PAIR_JSON}, path=path, service=service).status == 200
    assert service.calls[0].version == "1.0.0"
    missing = "/v2/models/demo/pair/versions/9.9.9/infer"
    assert post({"inputs": PAIR_JSON}, path=missing).status == 404


def test_headers_tell_how_the_answer_came_about() -> None:
    got = post({"inputs": PAIR_JSON}, x_request_id="mine-1")
    assert got.headers["edge-agent-engine"] == "onnx"
    assert got.headers["edge-agent-cache"] == "miss"
    assert got.headers["server-timing"] == (
        "queue;dur=0.250, prepare;dur=1.000, infer;dur=2.500, answer;dur=0.500"
    )
    assert got.headers["x-request-id"] == "mine-1"


@pytest.mark.parametrize(
    ("dtype", "datatype", "code"),
    [
        ("float16", "FP16", "e"),
        ("float32", "FP32", "f"),
        ("float64", "FP64", "d"),
        ("uint8", "UINT8", "B"),
        ("int8", "INT8", "b"),
        ("uint16", "UINT16", "H"),
        ("int16", "INT16", "h"),
        ("int32", "INT32", "i"),
        ("int64", "INT64", "q"),
        ("bool", "BOOL", "?"),
    ],
)
def test_every_element_type_goes_in_as_bytes(dtype: str, datatype: str, code: str) -> None:
    service = FakeService()
    sent = struct.pack(f"<2{code}", 1, 0)
    one = binary("a", [1, 2], len(sent), datatype)
    assert post({"inputs": [one]}, sent, service=service).status == 200
    (got,) = service.calls[0].query.tensors
    assert (got.dtype, bytes(got.data)) == (dtype, sent)


def test_no_element_type_is_forgotten() -> None:
    assert set(get_args(DType)) == set(DATATYPES) == set(ITEM_BYTES)


def test_request_ids_are_made_where_missing_and_refused_where_odd() -> None:
    first, second = (post({"inputs": PAIR_JSON}).headers["x-request-id"] for _ in range(2))
    assert first != second
    for odd in ("", "a b", "x" * 129, "é"):
        got = post({"inputs": PAIR_JSON}, x_request_id=odd)
        assert got.status == 400
