"""Image files: as BYTES of protocol v2, as the body of /infer, as the file of a form."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest

from edge_agent.answers import SCHEMA
from edge_agent.errors import ImageError
from edge_agent.server import uploads
from tests.agent.server.asgi import Got, asked, data
from tests.agent.server.fakes import COLOUR as MODEL
from tests.agent.server.fakes import DIGEST, FakeService, status

COLOUR = "/v2/models/acme/colour/infer"


def infer(
    files: list[bytes], shape: list[int], service: FakeService, cut: int = 0, **more: Any
) -> Got:
    tail = b"".join(struct.pack("<I", len(one)) + one for one in files)
    tail = tail[: len(tail) - cut]
    one = {
        "name": "image",
        "shape": shape,
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(tail)},
    }
    head = json.dumps({"inputs": [one], **more}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    return asked(data(service), "POST", COLOUR, head + tail, headers)


@pytest.mark.parametrize("shape", [[2], [2, 1]])
def test_bytes_of_the_image_input_are_image_files(shape: list[int]) -> None:
    service = FakeService()
    assert infer([b"first", b"second!"], shape, service).status == 200
    query = service.calls[0].query
    assert [bytes(one) for one in query.images] == [b"first", b"second!"]
    assert query.tensors == ()


@pytest.mark.parametrize(
    ("files", "shape", "cut"),
    [
        ([b"a"], [2], 0),
        ([b"a"], [], 0),
        ([b"ab"], [1], 1),
        ([b"ab"], [1], 5),
        ([b""] * 1025, [1025], 0),
    ],
)
def test_bytes_that_dont_add_up_are_refused(files: list[bytes], shape: list[int], cut: int) -> None:
    service = FakeService()
    assert infer(files, shape, service, cut).status == 400
    assert not service.calls


def test_an_image_as_json_text_is_refused_with_the_way_that_works() -> None:
    one = {"name": "image", "shape": [1], "datatype": "BYTES", "data": ["iVBORw0KGgo="]}
    got = asked(data(FakeService()), "POST", COLOUR, json.dumps({"inputs": [one]}).encode())
    assert got.status == 400
    assert "binary data" in got.json()["error"]
    assert "/infer" in got.json()["error"]


@pytest.mark.parametrize("is_binary", [False, True])
def test_classes_are_score_index_and_label(is_binary: bool) -> None:
    service = FakeService()
    outputs = [{"name": "scores", "parameters": {"classification": 2, "binary_data": is_binary}}]
    got = infer([b"a", b"b"], [2], service, outputs=outputs)
    texts = ["0.750000:1:green", "0.200000:0:red"] * 2
    assert (service.calls[0].query.wants, service.calls[0].query.top_k) == ("labels", 2)
    if not is_binary:
        (output,) = got.json()["outputs"]
        assert output == {"name": "scores", "datatype": "BYTES", "shape": [2, 2], "data": texts}
        return
    length = int(got.headers["inference-header-content-length"])
    (output,) = json.loads(got.body[:length])["outputs"]
    packed = b"".join(struct.pack("<I", len(one)) + one.encode() for one in texts)
    assert output["parameters"] == {"binary_data_size": len(packed)}
    assert got.body[length:] == packed


def test_classes_beside_other_outputs_are_refused() -> None:
    outputs = [{"name": "scores", "parameters": {"classification": 2}}, {"name": "scores"}]
    assert infer([b"a"], [1], FakeService(), outputs=outputs).status == 400


def post(
    body: bytes,
    content_type: str | None,
    path: str = "/infer/acme/colour",
    service: FakeService | None = None,
) -> Got:
    headers = {} if content_type is None else {"Content-Type": content_type}
    return asked(data(service or FakeService()), "POST", path, body, headers)


@pytest.mark.parametrize("kind", [None, "image/jpeg", "image/x-odd", "application/octet-stream"])
def test_the_body_is_the_image_and_the_answer_that_of_the_command(kind: str | None) -> None:
    service = FakeService()
    got = post(b"photo", kind, service=service)
    assert got.status == 200
    assert got.json() == {
        "schema": SCHEMA,
        "input": None,
        "model": {"name": "acme/colour", "version": "1.0.0", "digest": DIGEST},
        "engine": "onnx",
        "labels": [
            {"index": 1, "label": "green", "score": 0.75},
            {"index": 0, "label": "red", "score": 0.2},
            {"index": 2, "label": "blue", "score": 0.05},
        ],
        "outputs": [],
        "confident": True,
        "timings_ms": {"prepare": 1.0, "infer": 2.5, "answer": 0.5},
        "cached": False,
    }
    assert bytes(service.calls[0].query.images[0]) == b"photo"


def test_top_k_reaches_the_model() -> None:
    service = FakeService()
    got = post(b"photo", None, "/infer/acme/colour?top_k=1", service)
    assert len(got.json()["labels"]) == 1
    assert service.calls[0].query.top_k == 1
    for odd in ("0", "1001", "x", "-1", "", "1.5", "99999999999", "²", "0" * 5000 + "5"):
        assert post(b"photo", None, f"/infer/acme/colour?top_k={odd}").status == 400


def form(*parts: tuple[str, bytes], boundary: str = "edge") -> bytes:
    made = b"".join(
        b"--%s\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n"
        % (boundary.encode(), head.encode(), body)
        for head, body in parts
    )
    return made + b"--%s--\r\n" % boundary.encode()


FILE = 'name="f"; filename="photo.jpg"'
MULTIPART = "multipart/form-data; boundary=edge"


@pytest.mark.parametrize(
    "photo", [b"photo", b"\r\n--edg", b"\r\n--edgf\r\n--", bytes(range(256)) * 300]
)
def test_the_one_file_of_a_form_is_the_image(photo: bytes) -> None:
    service = FakeService()
    body = form(('name="note"', b"hello"), (FILE, photo))
    assert post(body, MULTIPART, service=service).status == 200
    assert bytes(service.calls[0].query.images[0]) == photo


def test_a_large_form_is_read_beside_others() -> None:
    async def scenario() -> bytes:
        body = form((FILE, bytes(1024 * 1024)))
        reading = asyncio.create_task(uploads.image(body, MULTIPART.encode()))
        await asyncio.sleep(0)
        assert not reading.done()
        return bytes(await reading)

    assert asyncio.run(scenario()) == bytes(1024 * 1024)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (form((FILE, b"a"), (FILE, b"b")), MULTIPART),
        (form(('name="f"', b"a")), MULTIPART),
        (form((FILE, b"")), MULTIPART),
        (form((FILE, b"a"))[:-6], MULTIPART),
        (form((FILE, b"a")), "multipart/form-data"),
        (form((FILE, b"a")), "multipart/form-data; boundary=" + "x" * 71),
        (form((FILE, b"a")), "multipart/form-data; boundary=other"),
        (form(*[('name="n"', b"")] * 17), MULTIPART),
        (form((f'name="{"n" * 20_000}"', b"")), MULTIPART),
        (b"", None),
        (b"", "image/png"),
    ],
)
def test_a_body_without_exactly_one_image_is_refused(body: bytes, kind: str | None) -> None:
    service = FakeService()
    assert post(body, kind, service=service).status == 400
    assert not service.calls


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/json", "multipart/mixed", "image", "x"]
)
def test_other_types_are_refused(kind: str) -> None:
    assert post(b"photo", kind).status == 415


def test_a_model_that_takes_no_image_says_so() -> None:
    got = post(b"photo", None, "/infer/demo/net")
    assert got.status == 400
    assert got.json()["hint"] == "send its tensors to /v2/models/demo/net/infer"


def test_an_image_at_fault_is_the_callers() -> None:
    service = FakeService()
    service.error = ImageError("is damaged", path="/var/lib/secret")
    got = post(b"photo", None, service=service)
    assert got.status == 400
    assert got.json() == {"error": "is damaged", "kind": "ImageError"}


def test_a_model_that_was_never_opened_isnt_ready() -> None:
    service = FakeService((MODEL,))
    service.statuses[0] = type(service.statuses[0])(
        service.statuses[0].ref, "UNAVAILABLE", "", True, "", None, False
    )
    assert status(MODEL).description is not None
    assert post(b"photo", None, service=service).status == 503
