"""The table of engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.backends.onnx import OnnxBackend
from edge_agent.backends.tflite import TfliteBackend

if TYPE_CHECKING:
    from edge_agent.backends.base import Backend

BACKENDS: Final[dict[str, Backend]] = {"onnx": OnnxBackend(), "tflite": TfliteBackend()}
# For a process that works beside others.
SHARING_BACKENDS: Final[dict[str, Backend]] = BACKENDS | {"onnx": OnnxBackend(spins=False)}
