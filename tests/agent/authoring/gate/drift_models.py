"""A float model and its INT8 twin whose answers can be worked out by hand, and projects of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edge_agent import model_yaml
from edge_agent.backends.base import ModelFile
from edge_agent.bundles import Contents
from edge_agent.types import ModelRef
from tests.agent import models

# y = max(2 x, 0) + 1
LINE: models.Yaml = {
    "schema": "edge-agent/model/v1",
    "name": "acme/line",
    "version": "1.0.0",
    "task": "arithmetic",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [1, 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": [1, 4]}],
    "engines": [{"engine": "onnx", "file": "model.onnx"}],
    "postprocess": {"kind": "raw"},
}
RIGHT_SCALE = 1 / 8
# 255 steps of it reach 1.992 only: everything above is cut off.
WRONG_SCALE = 1 / 128
OUTPUT_SCALE = 0.5


class Memory(Contents):
    """A model whose files are in memory."""

    def __init__(self, document: models.Yaml, **files: bytes) -> None:
        self.description = model_yaml.parse(models.text(document))
        self.ref = ModelRef(self.description.name, self.description.version, "")
        self._files = {
            name.replace("__", "/").replace("_", "."): data for name, data in files.items()
        }

    def read(self, name: str, max_bytes: int) -> bytes:
        return self._files[name]


def line(output: str = "y") -> ModelFile:
    """The float model."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"]),
        helper.make_node("Relu", ["doubled"], ["active"]),
        helper.make_node("Add", ["active", "one"], [output]),
    ]
    return _file(nodes, output, {"two": 2.0, "one": 1.0})


def quantised(scale: float = RIGHT_SCALE, activation: str | None = None) -> ModelFile:
    """Its twin as ONNX Runtime's quantiser writes it; `activation` follows the last rounding."""
    last = "y" if activation is None else "rounded"
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"]),
        helper.make_node("Relu", ["doubled"], ["active"]),
        *_rounding("active", "active_QuantizeLinear_Output", "active_DequantizeLinear_Output"),
        helper.make_node(
            "Add", ["active_DequantizeLinear_Output", "one"], ["y_QuantizeLinear_Input"]
        ),
        *_rounding("y_QuantizeLinear_Input", "y_QuantizeLinear_Output", last, "y_scale"),
    ]
    if activation is not None:
        nodes.append(helper.make_node(activation, [last], ["y"]))
    numbers = {"two": 2.0, "one": 1.0, "active_scale": scale, "y_scale": OUTPUT_SCALE}
    return _file(nodes, "y", numbers)


def _rounding(source: str, whole: str, result: str, scale: str = "active_scale") -> list[Any]:
    return [
        helper.make_node("QuantizeLinear", [source, scale, "zero"], [whole]),
        helper.make_node("DequantizeLinear", [whole, scale, "zero"], [result]),
    ]


def _file(nodes: list[Any], output: str, numbers: dict[str, float]) -> ModelFile:
    weights: list[TensorProto] = [
        numpy_helper.from_array(np.array(value, np.float32), name)
        for name, value in numbers.items()
    ]
    weights.append(numpy_helper.from_array(np.array(0, np.uint8), "zero"))
    return ModelFile(models.onnx_file(nodes, {"x": [1, 4]}, {output: [1, 4]}, weights))
