"""How a tensor or a frame is put to each server."""

from __future__ import annotations

import json
from collections.abc import Mapping

from serving.inputs import SHAPE, TENSOR_BYTES, Frames, Source, Tensors, posts

MODEL = "demo/efficientnet-lite0"
_OCTETS = {"Content-Type": "application/octet-stream"}
_INFERENCE_HEADER = json.dumps(
    {
        "inputs": [
            {
                "name": "images",
                "shape": SHAPE,
                "datatype": "FP32",
                "parameters": {"binary_data_size": TENSOR_BYTES},
            }
        ],
        "outputs": [{"name": "logits", "parameters": {"binary_data": True}}],
    }
).encode()


def tensors(inputs: Tensors, headers: Mapping[str, str] = {}) -> Source:
    """Returns binary requests of the Open Inference Protocol."""
    size = str(len(_INFERENCE_HEADER))
    headers = {**_OCTETS, "Inference-Header-Content-Length": size, **headers}
    return posts(f"/v2/models/{MODEL}/infer", headers, lambda: (_INFERENCE_HEADER, inputs.unique()))


def frames(inputs: Frames) -> Source:
    """Returns requests that carry a JPEG."""
    return posts(f"/infer/{MODEL}", {"Content-Type": "image/jpeg"}, inputs.unique)


def octets(path: str, inputs: Tensors) -> Source:
    """Returns requests that are nothing but a tensor's bytes."""
    return posts(path, _OCTETS, lambda: (inputs.unique(),))


def base64_json(inputs: Tensors) -> Source:
    """Returns requests of the Open Inference Protocol as MLServer takes them over REST."""
    before, after = (
        b'{"inputs":[{"name":"images","shape":[1],"datatype":"BYTES",'
        b'"parameters":{"content_type":"base64"},"data":["',
        b'"]}]}',
    )
    return posts(
        "/v2/models/demo/infer",
        {"Content-Type": "application/json"},
        lambda: (before, inputs.unique_base64(), after),
    )
