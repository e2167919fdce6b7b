"""What became of a model's operators and weights when it was quantised. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from edge_agent.authoring.quantising.float_model import WEIGHTED
from edge_agent.authoring.weight_scales import axis_of, is_per_tensor

_QUANTIZE = "QuantizeLinear"
_DEQUANTIZE = "DequantizeLinear"


@dataclass(frozen=True, slots=True)
class Operator:
    """The nodes of one type.

    Attributes:
        type: ONNX's name of it.
        quantised: How many of them work on eight bits, or were merged into a neighbour that does.
        total: How many there are.
    """

    type: str
    quantised: int
    total: int


@dataclass(frozen=True, slots=True)
class Weights:
    """How many weights have one scale a channel, and how many one for the whole tensor."""

    per_channel: int
    per_tensor: int


def count_operators(total: Counter[str], after: Any) -> tuple[Operator, ...]:
    """Counts the operators that were quantised.

    Args:
        total: How many nodes of each type the float model has, prepared for the quantiser.
        after: The quantised ModelProto.

    Returns:
        One entry a type, by name.
    """
    left = _float_nodes(after)
    return tuple(Operator(kind, total[kind] - left[kind], total[kind]) for kind in sorted(total))


def count_weights(after: Any) -> Weights:
    """Counts the weights of a quantised model; biases, of 32 bits, aren't among them."""
    tensors = {one.name: one for one in after.graph.initializer}
    single = [
        is_per_tensor(tensors[node.input[0]], tensors[node.input[1]], axis_of(node, 0))
        for node in after.graph.node
        if node.op_type == _DEQUANTIZE and node.input[0] in tensors and _is_int8(tensors, node)
    ]
    return Weights(len(single) - sum(single), sum(single))


def _is_int8(tensors: dict[str, Any], node: Any) -> bool:
    eight_bits = (2, 3)  # TensorProto.UINT8 and INT8
    return tensors[node.input[0]].data_type in eight_bits


def _float_nodes(after: Any) -> Counter[str]:
    """Counts by type the nodes that don't stand between DequantizeLinear and QuantizeLinear."""
    nodes = after.graph.node
    real = {name for node in nodes if node.op_type == _DEQUANTIZE for name in node.output}
    readers: dict[str, set[str]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    return Counter(
        node.op_type
        for node in nodes
        if node.op_type not in (_QUANTIZE, _DEQUANTIZE) and not _is_between(node, real, readers)
    )


def _is_between(node: Any, real: set[str], readers: dict[str, set[str]]) -> bool:
    needed = node.input[: 2 if node.op_type in WEIGHTED else 1]
    return all(name in real for name in needed) and all(
        readers.get(name) == {_QUANTIZE} for name in node.output if name
    )
