"""The demo's model in LitServe, octets in and octets out: python litserve_app.py PORT.

Its other settings (`fast_queue`, threads or processes for the API) make no difference here.
"""

# mypy: allow-subclassing-any

import sys
from pathlib import Path
from typing import Annotated, Any

import litserve
import numpy as np
import onnxruntime as ort
from fastapi import Depends, Request, Response

MODEL = Path(__file__).parents[3] / "edge_agent/demo/bundle/weights/efficientnet-lite0-u8s8.onnx"


async def octets(request: Request) -> bytes:
    """Reads a body that is neither JSON nor a form."""
    body: bytes = await request.body()
    return body


class Demo(litserve.LitAPI):
    """One worker with one session of one thread."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Loads the model."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])

    def decode_request(self, request: Annotated[bytes, Depends(octets)]) -> Any:
        """Makes the tensor of a body, which was not copied for it."""
        return np.frombuffer(request, np.float32).reshape(1, 3, 224, 224)

    def predict(self, x: Any) -> Any:
        """Runs the model."""
        return self.session.run(None, {"input": x})[0]

    def encode_response(self, output: Any) -> Any:
        """Makes the answer's body."""
        return Response(output.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    litserve.LitServer(Demo(), accelerator="cpu", workers_per_device=1).run(
        host="127.0.0.1",
        port=int(sys.argv[1]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
