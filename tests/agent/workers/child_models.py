"""Models with a batch axis, and some that misbehave."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.agent import models


def raw(name: str, x: dict[str, Any], y: dict[str, Any]) -> models.Yaml:
    """A model.yaml with one input and one output, without a golden input."""
    document = models.changed(models.ROWS, "name", f"acme/{name}")
    document["inputs"] = [{"name": "x", "dtype": "float32", **x}]
    document["outputs"] = [{"name": "y", "dtype": "float32", **y}]
    return document


def with_golden(document: models.Yaml) -> models.Yaml:
    golden = {
        "tensors": {"x": "golden/x.npy"},
        "outputs": [{"name": "y", "file": "golden/y.npy", "tolerance": 0.0}],
    }
    return document | {"golden": golden}


def doubling(axis: str = "N") -> tuple[models.Yaml, dict[str, bytes]]:
    """y = 2 x for rows of two, with a golden input."""
    document = raw("doubling", {"shape": [axis, 2]}, {"shape": [axis, 2]})
    files = {"golden/x.npy": models.npy([[1, 2]]), "golden/y.npy": models.npy([[2, 4]])}
    return with_golden(document), files | {"model.onnx": models.rows()}


def centred() -> tuple[models.Yaml, dict[str, bytes]]:
    """y = x - the mean of all rows: an answer depends on who runs along."""
    document = raw("centred", {"shape": ["N", 2]}, {"shape": ["N", 2]})
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    files = {"golden/x.npy": models.npy([[1, 2]]), "golden/y.npy": models.npy([[0, 0]])}
    files["model.onnx"] = models.onnx_file(nodes, {"x": ["N", 2]}, {"y": ["N", 2]})
    return with_golden(document), files


def lookup() -> tuple[models.Yaml, dict[str, bytes]]:
    """Rows of a table by their numbers: the engine fails over a number that isn't there."""
    document = raw("lookup", {"dtype": "int64", "shape": ["N"]}, {"shape": ["N", 2]})
    table = helper.make_tensor("table", TensorProto.FLOAT, [3, 2], [0, 0, 10, 11, 20, 21])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["y"])],
        "lookup",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])],
        [table],
    )
    files = {
        "golden/x.npy": models.npy([1], "int64"),
        "golden/y.npy": models.npy([[10, 11]]),
        "model.onnx": serialised(graph),
    }
    return with_golden(document), files


def colours() -> tuple[models.Yaml, dict[str, bytes]]:
    """`models.COLOUR` for any number of images."""
    document = models.changed(models.COLOUR, "name", "acme/batched-colour")
    document["inputs"][0]["shape"][0] = document["outputs"][0]["shape"][0] = "batch"
    factors = helper.make_tensor("factors", TensorProto.FLOAT, [3], [10.0, 10.0, 10.0])
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Mul", ["flat", "factors"], ["scores"]),
    ]
    shapes: tuple[Any, Any] = {"image": ["b", 3, 8, 8]}, {"scores": ["b", 3]}
    return document, {"model.onnx": models.onnx_file(nodes, *shapes, [factors])}


def greedy() -> tuple[models.Yaml, dict[str, bytes]]:
    """The sum of as many zeros as are asked for."""
    document = raw("greedy", {"dtype": "int64", "shape": [1]}, {"shape": [1]})
    nodes = [
        helper.make_node("ConstantOfShape", ["x"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "greedy",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    return document, {"model.onnx": serialised(graph)}


def patient() -> tuple[models.Yaml, dict[str, bytes]]:
    """Goes round as often as is asked for: as long as a test wants."""
    document = raw("patient", {"dtype": "int64", "shape": [1]}, {"shape": [1]})
    boolean, float32, int64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["state", "state"], ["next"]),
        ],
        "body",
        [value("round", int64, []), value("going", boolean, []), value("state", float32, [1])],
        [value("goes_on", boolean, []), value("next", float32, [1])],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Squeeze", ["x"], ["rounds"]),
            helper.make_node("Loop", ["rounds", "always", "one"], ["y"], body=body),
        ],
        "patient",
        [value("x", int64, [1])],
        [value("y", float32, [1])],
        [
            helper.make_tensor("always", boolean, [], [True]),
            helper.make_tensor("one", float32, [1], [1.0]),
        ],
    )
    return document, {"model.onnx": serialised(graph)}


def heavy(mib: int) -> tuple[models.Yaml, dict[str, bytes]]:
    """y = x * w, with so many MiB of weights."""
    count = mib << 18
    document = raw("heavy", {"shape": [1]}, {"shape": [count]})
    weights = helper.make_tensor("w", TensorProto.FLOAT, [count], bytes(4 * count), raw=True)
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    return document, {"model.onnx": models.onnx_file([node], {"x": [1]}, {"y": [count]}, [weights])}


def identity(dtype: str) -> tuple[models.Yaml, dict[str, bytes]]:
    """y = x, of any dtype."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Identity", ["x"], ["y"])
    shape = {"dtype": dtype, "shape": ["N", 3]}
    data = models.onnx_file([node], {"x": ["N", 3]}, {"y": ["N", 3]}, dtype=kind)
    return raw(dtype, shape, shape), {"model.onnx": data}


def serialised(graph: Any) -> bytes:
    opsets = [helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return data
