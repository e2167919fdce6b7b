"""The smallest models and model.yaml files that the tests of this room need."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import numpy as np
import yaml
from onnx import ModelProto, TensorProto, helper
from PIL import Image

Yaml = dict[str, Any]

# Three scores for an 8x8 image: ten times the mean of each channel.
COLOUR: Yaml = {
    "schema": "edge-agent/model/v1",
    "name": "acme/colour",
    "version": "1.0.0",
    "task": "image-classification",
    "inputs": [{"name": "image", "dtype": "float32", "shape": [1, 3, 8, 8], "layout": "NCHW"}],
    "outputs": [{"name": "scores", "dtype": "float32", "shape": [1, 3]}],
    "engines": [{"engine": "onnx", "file": "model.onnx"}],
    "preprocess": {
        "input": "image",
        "color": "RGB",
        "resize": {"rule": "stretch", "size": [8, 8], "filter": "box"},
        "normalize": {"divisor": 255, "mean": [0, 0, 0], "std": [1, 1, 1]},
    },
    "postprocess": {
        "kind": "classification",
        "output": "scores",
        "activation": "softmax",
        "labels": "labels.json",
        "top_k": 2,
    },
    "golden": {
        "image": "golden/green.png",
        "top": {"index": 1, "score": 1.0, "tolerance": 0.001},
    },
}

# product = left * right, under other names in the file.
PAIR: Yaml = {
    "schema": "edge-agent/model/v1",
    "name": "acme/pair",
    "version": "2.0.0",
    "task": "arithmetic",
    "inputs": [
        {"name": "left", "dtype": "float32", "shape": [1, 4], "range": [-10, 10]},
        {"name": "right", "dtype": "float32", "shape": [1, 4]},
    ],
    "outputs": [{"name": "product", "dtype": "float32", "shape": [1, 4]}],
    "engines": [
        {
            "engine": "onnx",
            "file": "model.onnx",
            "inputs": {"left": "l", "right": "r"},
            "outputs": {"product": "p"},
        }
    ],
    "postprocess": {"kind": "raw"},
    "golden": {
        "tensors": {"left": "golden/left.npy", "right": "golden/right.npy"},
        "outputs": [{"name": "product", "file": "golden/product.npy", "tolerance": 0.0}],
    },
}

# y = 2 x for any number of rows.
ROWS: Yaml = {
    "schema": "edge-agent/model/v1",
    "name": "acme/rows",
    "version": "3.0.0",
    "task": "arithmetic",
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["N", 2]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["N", 2]}],
    "engines": [{"engine": "onnx", "file": "model.onnx"}],
    "postprocess": {"kind": "raw"},
}


def changed(base: Yaml, path: str, value: Any) -> Yaml:
    """A copy with the value at ``a.0.b`` replaced; `...` removes it."""
    document = copy.deepcopy(base)
    *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
    place: Any = document
    for step in way:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def text(document: Yaml) -> bytes:
    plain = json.loads(json.dumps(document))  # PyYAML would write what is shared as an alias
    data: bytes = yaml.safe_dump(plain, sort_keys=False, encoding="utf-8")
    return data


def npy(value: Any, dtype: str = "float32") -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(value, dtype))
    return file.getvalue()


def png(colour: tuple[int, int, int], size: int = 8) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(file, "PNG")
    return file.getvalue()


def bundle_files(document: Yaml) -> dict[str, bytes]:
    """The files of a bundle with one of the models above, as its model.yaml may be changed."""
    made = {"model.yaml": text(document)}
    if document["name"].endswith("colour"):
        made |= {"model.onnx": colour(), "labels.json": b'["red", "green", "blue"]'}
        made["golden/green.png"] = png((0, 255, 0))
    elif document["name"].endswith("pair"):
        made["model.onnx"] = pair()
        made["golden/left.npy"] = npy([[1, 2, 3, 4]])
        made["golden/right.npy"] = npy([[2, 2, 2, -1]])
        made["golden/product.npy"] = npy([[2, 4, 6, -4]])
    else:
        made["model.onnx"] = rows()
    return made


def colour(external: str | None = None) -> bytes:
    """`COLOUR`'s ONNX file; with `external` its factors, three float32, lie in that file."""
    factors = helper.make_tensor("factors", TensorProto.FLOAT, [3], [10.0, 10.0, 10.0])
    if external is not None:
        factors.ClearField("float_data")
        factors.data_location = TensorProto.EXTERNAL
        entry = factors.external_data.add()
        entry.key, entry.value = "location", external
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Mul", ["flat", "factors"], ["scores"]),
    ]
    return onnx_file(nodes, {"image": [1, 3, 8, 8]}, {"scores": [1, 3]}, [factors])


def pair() -> bytes:
    node = helper.make_node("Mul", ["l", "r"], ["p"])
    return onnx_file([node], {"l": [1, 4], "r": [1, 4]}, {"p": [1, 4]})


def rows() -> bytes:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    return onnx_file([node], {"x": ["rows", 2]}, {"y": ["rows", 2]})


def onnx_file(
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: list[TensorProto] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in outputs.items()],
        weights or [],
    )
    opsets = [helper.make_opsetid("", 17)]
    model: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    data: bytes = model.SerializeToString()
    return data
