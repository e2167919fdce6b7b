"""Small float models that a quantiser meets: a CNN with a depthwise layer, and one of tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml
from onnx import TensorProto, helper, numpy_helper

from edge_agent.backends.base import ModelFile
from edge_agent.description import ModelDescription
from edge_agent.model_yaml import parse

SIDE = 16
CLASSES = 4


def description(**changed: Any) -> bytes:
    """The model.yaml of `cnn`."""
    value = {
        "schema": "edge-agent/model/v1",
        "name": "acme/shapes",
        "version": "1.0.0",
        "task": "image-classification",
        "inputs": [
            {"name": "image", "dtype": "float32", "shape": [1, 3, SIDE, SIDE], "layout": "NCHW"}
        ],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": [1, CLASSES]}],
        "engines": [{"engine": "onnx", "file": "weights/shapes-fp32.onnx"}],
        "preprocess": {
            "input": "image",
            "color": "RGB",
            "resize": {"rule": "stretch", "size": [SIDE, SIDE], "filter": "bilinear"},
            "normalize": {"divisor": 255, "mean": [0.5] * 3, "std": [0.25] * 3},
        },
        "postprocess": {
            "kind": "classification",
            "output": "scores",
            "activation": "softmax",
            "labels": "labels.json",
            "top_k": 2,
        },
    } | changed
    data: bytes = yaml.safe_dump(
        value, sort_keys=False, default_flow_style=None, width=100, encoding="utf-8"
    )
    return data


def described(**changed: Any) -> ModelDescription:
    return parse(description(**changed))


def cnn(
    opset: int = 17,
    batch: int | str = 1,
    ir_version: int = 8,
    named: bool = True,
    spread: bool = False,
) -> Any:
    """Convolution, batch normalisation, depthwise convolution, pooling, Gemm.

    Args:
        opset: Version of the operators.
        batch: Length of the first axis, or its name.
        ir_version: Version of the format; before 4 weights were listed as inputs too.
        named: Whether the nodes have names.
        spread: Whether a depthwise channel that is always zero has weights a thousand times as
            large as the others: one scale for the whole weight loses these.
    """
    random = np.random.default_rng(3)
    dead = np.arange(8) == (7 if spread else -1)
    weights = {
        "stem": random.normal(0, 0.3, (8, 3, 3, 3)),
        "scale": random.uniform(0.5, 1.5, 8),
        "shift": random.normal(0, 0.1, 8) - 100 * dead,
        "mean": random.normal(0, 0.1, 8),
        "variance": random.uniform(0.5, 1.5, 8),
        "deep": random.normal(0, 0.5, (8, 1, 3, 3)) * (1 + 999 * dead)[:, None, None, None],
        "head": random.normal(0, 1, (CLASSES, 8)),
        "bias": random.normal(0, 0.1, CLASSES),
    }
    pads: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["image", "stem"], ["a"], name="stem", **pads),
        helper.make_node(
            "BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"], name="norm"
        ),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("Conv", ["c", "deep"], ["d"], name="deep", group=8, **pads),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], name="pool"),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "head", "bias"], ["scores"], name="head", transB=1),
    ]
    for node in nodes if not named else ():
        node.ClearField("name")
    shapes: dict[str, list[Any]] = {"image": [batch, 3, SIDE, SIDE]}
    if ir_version < 4:
        shapes |= {name: list(value.shape) for name, value in weights.items()}
    return _model(nodes, shapes, {"scores": [batch, CLASSES]}, weights, opset, ir_version)


# A sentence's tokens and their mask become a mean of embeddings, twice multiplied.
TOKENS: dict[str, Any] = {
    "schema": "edge-agent/model/v1",
    "name": "acme/tokens",
    "version": "1.0.0",
    "task": "embedding",
    "inputs": [
        {"name": "ids", "dtype": "int64", "shape": [1, "words"]},
        {"name": "mask", "dtype": "float32", "shape": [1, "words"]},
    ],
    "outputs": [{"name": "meaning", "dtype": "float32", "shape": [1, 6]}],
    "engines": [
        {
            "engine": "onnx",
            "file": "tokens.onnx",
            "inputs": {"ids": "input_ids", "mask": "attention_mask"},
        }
    ],
    "postprocess": {"kind": "raw"},
}


def tokens() -> Any:
    """See `TOKENS`."""
    random = np.random.default_rng(5)
    weights = {
        "table": random.normal(0, 1, (32, 8)),
        "first": random.normal(0, 0.4, (8, 8)),
        "second": random.normal(0, 0.4, (8, 6)),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"], name="gather"),
        helper.make_node("MatMul", ["words", "first"], ["hidden"], name="first"),
        helper.make_node("Relu", ["hidden"], ["active"], name="relu"),
        helper.make_node("Unsqueeze", ["attention_mask", "last"], ["wide"], name="widen"),
        helper.make_node("Mul", ["active", "wide"], ["kept"], name="keep"),
        helper.make_node("ReduceMean", ["kept"], ["mean"], axes=[1], keepdims=0, name="mean"),
        helper.make_node("MatMul", ["mean", "second"], ["meaning"], name="second"),
    ]
    model = _model(nodes, {"attention_mask": [1, "words"]}, {"meaning": [1, 6]}, weights, opset=13)
    model.graph.input.insert(
        0, helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "words"])
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "last"))
    return model


def file(model: Any) -> ModelFile:
    return ModelFile(model.SerializeToString())


def _model(
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    weights: dict[str, Any],
    opset: int,
    ir_version: int = 8,
) -> Any:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, at) for name, at in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, at) for n, at in outputs.items()],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
