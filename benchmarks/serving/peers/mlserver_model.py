"""The demo's model as a runtime of MLServer, asked in each of the ways that it has."""

# mypy: allow-subclassing-any, allow-untyped-decorators

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from fastapi import Request, Response
from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.handlers import custom_handler
from mlserver.types import InferenceRequest, InferenceResponse

MODEL = Path(__file__).parents[3] / "edge_agent/demo/bundle/weights/efficientnet-lite0-u8s8.onnx"


class Demo(MLModel):
    """One session of one thread."""

    async def load(self) -> bool:
        """Loads the model."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
        return True

    async def predict(self, payload: InferenceRequest) -> Any:
        """Answers the inference protocol: a tensor is one BYTES element, plain over gRPC."""
        tensor = payload.inputs[0]
        (data,) = tensor.data.root
        if tensor.parameters and tensor.parameters.content_type == Base64Codec.ContentType:
            (data,) = Base64Codec.decode_input(tensor)
        output = Base64Codec.encode_output("logits", [self._run(data)])
        return InferenceResponse(model_name=self.name, outputs=[output])

    @custom_handler(rest_path="/raw")
    async def raw(self, request: Request) -> Any:
        """Answers octets, past MLServer's protocol, metrics and batching."""
        return Response(self._run(await request.body()), media_type="application/octet-stream")

    def _run(self, data: bytes) -> bytes:
        tensor = np.frombuffer(data, np.float32).reshape(1, 3, 224, 224)
        logits: bytes = self.session.run(None, {"input": tensor})[0].tobytes()
        return logits
