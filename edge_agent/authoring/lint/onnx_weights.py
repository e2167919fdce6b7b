"""Checks of the weights in an ONNX file: numbers, and how they are quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.weight_scales import axis_of, is_per_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_agent.types import Tensor

# Where the channels of what a layer makes stand in its weights.
_CHANNEL_AXES: Final = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}


def check(folder: Path, file: str, proto: Any, with_external: bool) -> Iterator[Finding]:
    """Checks the weights.

    Args:
        folder: The project.
        file: The ONNX file in it.
        proto: That file, parsed.
        with_external: Whether its external data is sound, and may be read.
    """
    base = str((folder / file).parent)
    kinds = onnx_graphs.package().TensorProto
    floats = (kinds.FLOAT, kinds.FLOAT16, kinds.DOUBLE, kinds.BFLOAT16)
    for name, tensor in onnx_graphs.tensors(proto):
        if tensor.data_location == kinds.EXTERNAL and not with_external:
            continue
        if tensor.data_type in floats:
            problem = _problem(tensor, base)
            if problem:
                yield Finding(problem[0], file, f"the weights {name!r} {problem[1]}")
    yield from _per_tensor(file, proto)


def _problem(tensor: Any, base: str) -> tuple[str, str] | None:
    import numpy as np

    try:
        value = onnx_graphs.package().numpy_helper.to_array(tensor, base)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        return "file-damaged", f"can't be read: {' '.join(str(error).split())[:200]}"
    value = value.astype(np.float32) if value.dtype.kind not in "f" else value
    return None if np.isfinite(value).all() else ("weights-not-finite", _counted(value))


def _counted(value: Tensor) -> str:
    import numpy as np

    nan, infinite = int(np.isnan(value).sum()), int(np.isinf(value).sum())
    counts = [f"{nan} NaN"] * bool(nan) + [f"{infinite} infinity"] * bool(infinite)
    return f"hold {' and '.join(counts)} among {value.size} numbers"


def _per_tensor(file: str, proto: Any) -> Iterator[Finding]:
    weights = {one.name: one for one in proto.graph.initializer}
    layers = [
        is_per_tensor(weights[weight], weights[scale], axis)
        for weight, scale, axis in _quantised_weights(proto)
        if weight in weights and scale in weights and len(weights[weight].dims) > 1
    ]
    if any(layers):
        yield Finding(
            "weights-per-tensor",
            file,
            f"{sum(layers)} of {len(layers)} layers have one scale for all channels, which costs "
            "accuracy",
            hint="quantise the weights per channel",
        )


def _quantised_weights(proto: Any) -> Iterator[tuple[str, str, int]]:
    """Yields the names of a layer's quantised weights and of their scale, and the channel axis."""
    fed = {
        node.input[1]: _channel_axis(node)
        for node in proto.graph.node
        if node.op_type in _CHANNEL_AXES and len(node.input) > 1
    }
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear" and node.output and node.output[0] in fed:
            yield node.input[0], node.input[1], axis_of(node, fed[node.output[0]])
        elif node.op_type in ("QLinearConv", "QLinearMatMul") and len(node.input) > 4:
            yield node.input[3], node.input[4], 0 if node.op_type == "QLinearConv" else -1


def _channel_axis(node: Any) -> int:
    turned = any(one.name == "transB" and one.i for one in node.attribute)
    return 0 if turned else _CHANNEL_AXES[node.op_type]
