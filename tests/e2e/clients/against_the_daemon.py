"""What three clients make of `edge-agent serve` with one real model: scores are ten times means."""

import asyncio
import sys

import httpx
import kserve
import numpy as np
import tritonclient.http as triton
from open_inference.openapi.client import InferenceRequest, OpenInferenceClient

MODEL, VERSION = "acme/colour", "1.0.0"
address, token = sys.argv[1:]
url = f"http://{address}"
auth = {"Authorization": f"Bearer {token}"}
red = np.zeros((1, 3, 8, 8), np.float32)
red[:, 0] = 1
SCORES = [10, 0, 0]


def tritonclient() -> None:
    client = triton.InferenceServerClient(address)
    assert client.is_model_ready(MODEL, headers=auth)
    described = client.get_model_metadata(MODEL, headers=auth)
    assert (described["versions"], described["platform"]) == ([VERSION], "onnxruntime_onnx")
    assert described["inputs"][0]["shape"] == [1, 3, 8, 8]
    (entry,) = client.get_model_repository_index(headers=auth)
    assert (entry["name"], entry["version"], entry["state"]) == (MODEL, VERSION, "READY")

    given = triton.InferInput("image", [1, 3, 8, 8], "FP32").set_data_from_numpy(red)
    for wanted in (None, [triton.InferRequestedOutput("scores", binary_data=False)]):
        answer = client.infer(
            MODEL, [given], outputs=wanted, request_id="7", priority=1, headers=dict(auth)
        )
        assert answer.get_response()["id"] == "7"
        assert answer.as_numpy("scores").tolist() == [SCORES]
    classes = client.infer(
        MODEL,
        [given],
        outputs=[triton.InferRequestedOutput("scores", class_count=2)],
        headers=dict(auth),
    )
    assert classes.as_numpy("scores")[0][0].endswith(b":0:red")

    (told,) = client.get_inference_statistics(MODEL, headers=auth)["model_stats"]
    assert told["inference_stats"]["success"]["count"] == 3
    assert 0 < told["execution_count"] <= told["inference_count"] <= 3


async def kserves() -> None:
    one = kserve.InferInput("image", [1, 3, 8, 8], "FP32")
    one.set_data_from_numpy(red, binary_data=True)
    client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2"))
    assert await client.is_server_ready(url, headers=auth)
    answer = await client.infer(
        url, kserve.InferRequest(MODEL, [one]), model_name=MODEL, headers=dict(auth)
    )
    assert answer.outputs[0].as_numpy().tolist() == [SCORES]
    await client.close()
    client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v1"))
    rows = {"instances": [red[0].tolist(), (red[0] / 2).tolist()]}
    answer = await client.infer(url, rows, model_name=MODEL, headers=auth)
    assert answer == {"predictions": [SCORES, [5, 0, 0]]}
    await client.close()


def open_inference() -> None:
    session = httpx.Client(headers=auth)
    client = OpenInferenceClient(base_url=url, httpx_client=session)
    client.check_server_readiness()
    client.check_model_version_readiness(MODEL, VERSION)
    assert client.read_model_metadata(MODEL).outputs[0].name == "scores"
    given = {"name": "image", "shape": [1, 3, 8, 8], "datatype": "FP32"}
    request = InferenceRequest(id="7", inputs=[given | {"data": red.ravel().tolist()}])
    answer = client.model_infer(MODEL, request=request)
    assert (answer.id, list(answer.outputs[0].data.__root__)) == ("7", SCORES)


tritonclient()
asyncio.run(kserves())
open_inference()
