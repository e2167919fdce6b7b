"""What the Open Inference working group's client makes of the server."""

import sys

import httpx
from open_inference.openapi.client import InferenceRequest, OpenInferenceClient

address, token = sys.argv[1:]
session = httpx.Client(headers={"Authorization": f"Bearer {token}"})
client = OpenInferenceClient(base_url=f"http://{address}", httpx_client=session)

client.check_server_liveness()
client.check_server_readiness()
client.check_model_readiness("demo/net")
client.check_model_version_readiness("demo/net", "1.0.0")
assert client.read_server_metadata().name == "edge-agent"
assert client.read_model_metadata("demo/net").versions == ["1.0.0"]
assert client.read_model_version_metadata("demo/net", "1.0.0").outputs[0].datatype == "FP32"
one = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
request = InferenceRequest(id="7", inputs=[one])
for answer in (
    client.model_infer("demo/batched", request=request),
    client.model_version_infer("demo/batched", "1.0.0", request=request),
):
    assert answer.id == "7"
    assert list(answer.outputs[0].data.__root__) == [0, 1, 2, 3]
