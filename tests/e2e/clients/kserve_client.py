"""What KServe's client makes of the server."""

import asyncio
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

address, token = sys.argv[1:]
url = f"http://{address}"
auth = {"Authorization": f"Bearer {token}"}


async def v1() -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v1"))
    assert await client.is_server_live(url, headers=auth)
    assert await client.is_model_ready(url, "demo/net", headers=auth)
    answer = await client.infer(
        url, {"instances": [[1, 2], [3, 4]]}, model_name="demo/batched", headers=auth
    )
    assert answer == {"predictions": [[0, 1], [2, 3]]}
    await client.close()


async def v2() -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_server_live(url, headers=auth)
    assert await client.is_server_ready(url, headers=auth)
    assert await client.is_model_ready(url, "demo/net", headers=auth)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for binary_in in (True, False):
        for binary_out in (True, False):
            one = InferInput("x", [3, 2], "FP32")
            one.set_data_from_numpy(x, binary_data=binary_in)
            request = InferRequest(
                "demo/batched",
                [one],
                request_id="7",
                request_outputs=[RequestedOutput("y", {"binary_data": binary_out})],
            )
            answer = await client.infer(url, request, model_name="demo/batched", headers=dict(auth))
            assert answer.id == "7"
            assert (answer.outputs[0].as_numpy() == x).all()
    await client.close()


asyncio.run(v1())
asyncio.run(v2())
