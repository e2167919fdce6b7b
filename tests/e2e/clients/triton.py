"""What Triton's HTTP client makes of the server."""

import sys

import numpy as np
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

address, token = sys.argv[1:]
auth = {"Authorization": f"Bearer {token}"}
client = triton.InferenceServerClient(address)


def given(name: str, value: np.ndarray, datatype: str, binary: bool = True) -> triton.InferInput:
    made = triton.InferInput(name, list(value.shape), datatype)
    return made.set_data_from_numpy(value, binary_data=binary)


assert client.is_server_live(headers=auth)
assert client.is_server_ready(headers=auth)
assert client.is_model_ready("demo/net", headers=auth)
assert client.is_model_ready("demo/net", "1.0.0", headers=auth)
assert not client.is_model_ready("none", headers=auth)
assert not client.is_server_live()
assert client.get_server_metadata(headers=auth)["name"] == "edge-agent"
assert client.get_model_metadata("demo/pair", headers=auth)["outputs"][0]["name"] == "sum"
assert client.get_model_config("demo/pair", "1.0.0", headers=auth)["input"][1]["dims"] == [1, 1]
assert len(client.get_inference_statistics(headers=auth)["model_stats"]) == 5
assert client.get_inference_statistics("demo/net", headers=auth)["model_stats"][0]["version"]
assert len(client.get_model_repository_index(headers=auth)) == 5
try:
    client.load_model("demo/net", headers=auth)
except InferenceServerException as error:
    assert error.status() == "403"
else:
    raise AssertionError("loaded")

x = np.arange(6, dtype=np.float32).reshape(3, 2)
for binary_in in (True, False):
    for outputs in (None, [triton.InferRequestedOutput("y", binary_data=False)]):
        for packed in (None, "gzip", "deflate"):
            result = client.infer(
                "demo/batched",
                [given("x", x, "FP32", binary_in)],
                outputs=outputs,
                request_id="7",
                priority=1,
                timeout=5_000_000,
                request_compression_algorithm=packed,
                response_compression_algorithm=packed,
                parameters={"mine": 1},
                headers=dict(auth),
            )
            assert result.get_response()["id"] == "7"
            assert (result.as_numpy("y") == x).all()

net = np.zeros((1, 3, 224, 224), np.float32)
for packed in (None, "gzip", "deflate"):
    result = client.infer(
        "demo/net",
        [given("image", net, "FP32")],
        response_compression_algorithm=packed,
        headers=dict(auth),
    )
    assert (result.as_numpy("scores") == np.arange(1000)).all()

photos = np.array([b"first", b"second"], dtype=np.object_)
for binary_out in (True, False):
    wanted = triton.InferRequestedOutput("scores", binary_data=binary_out, class_count=2)
    classes = client.infer(
        "acme/colour", [given("image", photos, "BYTES")], outputs=[wanted], headers=dict(auth)
    ).as_numpy("scores")
    assert classes.shape == (2, 2)
    text = classes[0][0]
    assert (text.decode() if isinstance(text, bytes) else text) == "0.750000:1:green"

answers = [
    client.async_infer("demo/batched", [given("x", x, "FP32")], headers=dict(auth))
    for _ in range(4)
]
assert all((answer.get_result().as_numpy("y") == x).all() for answer in answers)
try:
    client.infer("demo/batched", [given("x", x, "FP32")], sequence_id=5, headers=dict(auth))
except InferenceServerException as error:
    assert "sequences" in error.message()
else:
    raise AssertionError("took a sequence")
