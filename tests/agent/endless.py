"""A model whose loop has more rounds than anybody waits for."""

from __future__ import annotations

from onnx import TensorProto, helper


def endless_model() -> bytes:
    """An image [1, 3, 8, 8] goes in, scores [1, 3] never come out."""
    boolean, float32, int64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes_on"]),
            helper.make_node("Add", ["state", "state"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", int64, []),
            helper.make_tensor_value_info("going", boolean, []),
            helper.make_tensor_value_info("state", float32, [1, 3]),
        ],
        [
            helper.make_tensor_value_info("goes_on", boolean, []),
            helper.make_tensor_value_info("next", float32, [1, 3]),
        ],
    )
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("Loop", ["rounds", "always", "flat"], ["scores"], body=body),
        ],
        "endless",
        [helper.make_tensor_value_info("image", float32, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("scores", float32, [1, 3])],
        [
            helper.make_tensor("rounds", int64, [], [2**62]),
            helper.make_tensor("always", boolean, [], [True]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data
