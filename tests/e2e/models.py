"""Bundles beside `acme/colour` whose models go wrong over a red picture, and only over that."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper

from .conftest import MODEL_YAML, Publisher
from .load import COLOURS, picture

HANG, EATER = "acme/hang", "acme/eater"
ENDLESS = 1e18
_FLOAT, _INT64 = TensorProto.FLOAT, TensorProto.INT64


def publish(
    publisher: Publisher,
    name: str,
    model: bytes,
    version: str = "1.0.0",
    labels: bytes = b'["red", "green", "blue"]',
    golden: str = "green",
) -> None:
    """Writes and signs a bundle in the publisher's folder."""
    yaml = MODEL_YAML.replace("acme/colour", name).replace("1.2.3", version)
    yaml = yaml.replace("index: 1", f"index: {list(COLOURS).index(golden)}")
    publisher.clear()
    publisher.put("model.yaml", yaml.encode())
    publisher.put("labels.json", labels)
    publisher.put("weights/model.onnx", model)
    publisher.put("golden/green.png", picture(golden))
    publisher.sign(name=name)


def busy(rounds: float) -> bytes:
    """Goes round so often for a red picture: not at all for the golden one."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Identity", ["state"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", _INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", _FLOAT, [1, 3]),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", _FLOAT, [1, 3]),
        ],
    )
    nodes = [
        helper.make_node("Squeeze", ["count"], ["rounds"]),
        helper.make_node("Loop", ["rounds", "always", "tens"], ["scores"], body=body),
    ]
    return _model(rounds, nodes, [helper.make_tensor("always", TensorProto.BOOL, [], [True])])


def eater(mib: int) -> bytes:
    """Needs so much memory for a red picture."""
    nodes = [
        helper.make_node("ConstantOfShape", ["count"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["tens", "nothing"], ["scores"]),
    ]
    return _model(mib * 2**20 / 4, nodes, [])


def _model(factor: float, nodes: list[Any], weights: list[TensorProto]) -> bytes:
    """Puts nodes between `tens`, the scores of `acme/colour`, and `scores`.

    `count`, int64 [1], is the mean of red (0 to 1) by a factor.
    """
    scalars = {"ten": 10.0, "factor": factor}
    inputs = [helper.make_tensor_value_info("image", _FLOAT, [1, 3, 8, 8])]
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("Mul", ["flat", "ten"], ["tens"]),
            helper.make_node("Gather", ["flat", "red"], ["share"], axis=1),
            helper.make_node("Mul", ["share", "factor"], ["times"]),
            helper.make_node("Cast", ["times"], ["whole"], to=_INT64),
            helper.make_node("Reshape", ["whole", "one"], ["count"]),
            *nodes,
        ],
        "faulty",
        inputs,
        [helper.make_tensor_value_info("scores", _FLOAT, [1, 3])],
        [
            *(helper.make_tensor(name, _FLOAT, [1], [value]) for name, value in scalars.items()),
            helper.make_tensor("red", _INT64, [1], [0]),
            helper.make_tensor("one", _INT64, [1], [1]),
            *weights,
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
