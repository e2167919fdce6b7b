"""Protocol v1 of KServe: instances by rows and by columns."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest

from edge_agent.calls import Call
from edge_agent.errors import BadInputError
from edge_agent.server import v1_requests
from tests.agent.server.asgi import Got, ask, asked, data
from tests.agent.server.fakes import COLOUR, FakeService, raw

PHOTO = {"b64": b64encode(b"photo").decode()}


def predict(document: Any, model: str, service: FakeService | None = None, **headers: str) -> Got:
    body = json.dumps(document).encode()
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return asked(data(service or FakeService()), "POST", f"/v1/models/{model}:predict", body, names)


def sent(service: FakeService, name: str) -> list[tuple[tuple[int, ...], Any]]:
    """What was sent to the model for an input."""
    return [
        (one.shape, json.loads(bytes(one.data)))
        for call in service.calls
        for one in call.query.tensors
        if one.name == name
    ]


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [[1, 2], [3, 4], [5, 6]]},
        {"instances": [{"x": [1, 2]}, {"x": [3, 4]}, {"x": [5, 6]}]},
        {"inputs": [[1, 2], [3, 4], [5, 6]]},
        {"inputs": {"x": [[1, 2], [3, 4], [5, 6]]}, "signature_name": "serving_default"},
    ],
)
def test_a_model_that_batches_gets_one_query(document: Any) -> None:
    service = FakeService()
    got = predict(document, "demo/batched", service)
    assert got.status == 200
    assert got.json() == {"predictions": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]}
    assert sent(service, "x") == [((3, 2), [[1, 2], [3, 4], [5, 6]])]


def test_another_gets_a_call_a_row_and_answers_keep_their_order() -> None:
    service = FakeService()
    service.value = lambda call, at: float(json.loads(bytes(call.query.tensors[0].data))[0][0]) + at

    document = {"instances": [{"a": [n, 0], "b": [n]} for n in (10, 20, 30)]}
    got = predict(document, "demo/pair", service, idempotency_key="key")
    assert got.json()["predictions"] == [
        {"sum": [10.0, 11.0], "mean": [10.0]},
        {"sum": [20.0, 21.0], "mean": [20.0]},
        {"sum": [30.0, 31.0], "mean": [30.0]},
    ]
    assert sent(service, "b") == [((1, 1), [[10]]), ((1, 1), [[20]]), ((1, 1), [[30]])]
    assert [call.idempotency_key for call in service.calls] == ["key 0", "key 1", "key 2"]


def test_columns_are_rows_the_other_way_round() -> None:
    service = FakeService()
    document = {"inputs": {"a": [[1, 2], [3, 4]], "b": [[5], [6]]}}
    assert predict(document, "demo/pair", service).status == 200
    assert sent(service, "a") == [((1, 2), [[1, 2]]), ((1, 2), [[3, 4]])]
    assert sent(service, "b") == [((1, 1), [[5]]), ((1, 1), [[6]])]


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [PHOTO]},
        {"instances": [{"image": PHOTO}]},
        {"inputs": {"image": [PHOTO]}},
        {"inputs": PHOTO},
    ],
)
def test_images_come_as_base64(document: Any) -> None:
    service = FakeService()
    assert predict(document, "acme/colour", service).status == 200
    assert [bytes(one) for one in service.calls[0].query.images] == [b"photo"]


def test_an_open_axis_is_as_long_as_the_row() -> None:
    service = FakeService()
    assert predict({"instances": [[1, 2, 3]]}, "demo/open", service).status == 200
    assert sent(service, "x") == [((1, 3), [[1, 2, 3]])]


@pytest.mark.parametrize(
    ("model", "document"),
    [
        ("demo/batched", {}),
        ("demo/batched", []),
        ("demo/batched", {"instances": []}),
        ("demo/batched", {"instances": 5}),
        ("demo/batched", {"instances": [[1, 2]], "inputs": [[1, 2]]}),
        ("demo/batched", {"instances": [{"none": [1, 2]}]}),
        ("demo/batched", {"instances": [{}]}),
        ("demo/batched", {"instances": [{"x": [1, 2]}, {"y": [1, 2]}]}),
        ("demo/batched", {"instances": [[1, 2]] * 4097}),
        ("demo/batched", {"instances": [PHOTO]}),
        ("demo/batched", {"inputs": {}}),
        ("demo/net", {"instances": [[1]] * 129}),
        ("demo/open", {"instances": [5]}),
        ("demo/net", {"instances": [None]}),
        ("demo/net", {"instances": ["text"]}),
        ("demo/net", {"inputs": "text"}),
        ("demo/net", {"inputs": 5}),
        ("demo/net", {"inputs": {"image": None}}),
        ("demo/pair", {"instances": [[1, 2]]}),
        ("demo/pair", {"inputs": {"a": [[1, 2]], "b": [[1], [2]]}}),
        ("acme/colour", {"instances": [{"b64": "not base64!"}]}),
        ("acme/colour", {"instances": [{"b64": 5}]}),
        ("acme/colour", {"instances": [{"b64": "aGk=", "more": 1}]}),
    ],
)
def test_what_fits_no_input_never_reaches_the_model(model: str, document: Any) -> None:
    service = FakeService()
    got = predict(document, model, service)
    assert got.status == 400
    assert got.json()["error"]
    assert not service.calls


@pytest.mark.parametrize(
    ("row", "shape"),
    [
        ([[1, 2, 3]], (1, 1, 3)),
        ([[1, 2], [3, 4], [5, 6]], (1, 3, 2)),
        ([[]], (1, 1, 0)),
        ([[], [], []], (1, 3, 0)),
    ],
)
def test_open_axes_are_as_long_as_the_first_list_of_their_depth(
    row: Any, shape: tuple[int, ...]
) -> None:
    service = FakeService((raw("demo/wide", {"x": (1, "h", "w")}, {"y": (1, 1)}),))
    assert predict({"instances": [row]}, "demo/wide", service).status == 200
    assert sent(service, "x") == [(shape, [row])]
    assert predict({"instances": [[1, 2]]}, "demo/wide", service).status == 400


@pytest.mark.parametrize(
    "body", [b'{"instances": [%s]}', b'{"inputs": [%s]}', b'{"inputs": {"x": [%s]}}']
)
def test_a_list_that_is_too_long_isnt_made(body: bytes) -> None:
    long = body % (b"[]," * 70_000 + b"[]")
    got = asked(data(FakeService()), "POST", "/v1/models/demo/batched:predict", long)
    assert got.status == 400
    assert "at most length 4096" in got.json()["error"]


def test_an_instance_names_as_many_inputs_as_a_model_may_have() -> None:
    names = {f"x{number}": 1 for number in range(65)}
    got = predict({"instances": [names]}, "demo/batched")
    assert "length <= 64" in got.json()["error"]


def test_a_large_prediction_is_read_beside_others() -> None:
    photo = bytes(range(256)) * 8192
    document = {"instances": [{"b64": b64encode(photo).decode()}]}

    async def scenario() -> bytes:
        body = json.dumps(document).encode()
        reading = asyncio.create_task(v1_requests.read(body, COLOUR, batches=False))
        await asyncio.sleep(0)
        assert not reading.done()
        (query,), _ = await reading
        return bytes(query.images[0])

    assert asyncio.run(scenario()) == photo


def test_base64_ends_once() -> None:
    ended = "A" * (1024 * 1024 - 4) + "QQ=="
    got = predict({"instances": [{"b64": ended + "AAAA"}]}, "acme/colour")
    assert "base64" in got.json()["error"]
    assert predict({"instances": [{"b64": ended}]}, "acme/colour").status == 200


def test_one_bad_instance_fails_the_request_and_the_others_arent_waited_for() -> None:
    async def scenario() -> None:
        service = FakeService()
        service.gate = asyncio.Event()
        fine = service.infer

        async def infer(call: Call) -> Any:
            if b"13" in bytes(call.query.tensors[0].data):
                await service.entered.wait()
                raise BadInputError("unlucky")
            return await fine(call)

        service.infer = infer  # type: ignore[method-assign]
        body = json.dumps({"instances": [[1], [13]]}).encode()
        got = await ask(data(service), "POST", "/v1/models/demo/open:predict", body)
        assert got.status == 400
        await service.cancelled.wait()

    asyncio.run(scenario())


def test_models_are_listed_and_told_of() -> None:
    service = FakeService()
    listed = asked(data(service), "GET", "/v1/models").json()
    names = ["acme/colour", "demo/batched", "demo/net", "demo/open", "demo/pair"]
    assert listed == {"models": names}
    got = asked(data(service), "GET", "/v1/models/demo/net")
    assert got.status == 200
    version = {
        "version": "1.0.0",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    assert got.json() == {"name": "demo/net", "ready": True, "model_version_status": [version]}
    assert asked(data(service), "GET", "/v1/models/none").status == 404
    assert asked(data(service), "GET", "/").json() == {"status": "alive"}
