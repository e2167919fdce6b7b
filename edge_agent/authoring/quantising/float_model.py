"""A float32 ONNX model that is to be quantised: read into one message, checked and made tidy.

Everything that ONNX Runtime's quantiser would stumble over, or pass over in silence, is refused or
put right here, before minutes go into calibration.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.backends.base import ModelFile

# Source: ONNX Operators.md, QuantizeLinear-13: the first one with a scale a channel.
PER_CHANNEL_OPSET: Final = 13
# Protocol Buffers, "Total Size": no message of 2 GiB or more is written or read.
MAX_BYTES: Final = 2**31 - 1
# What has weights that are worth eight bits.
WEIGHTED: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_INTEGER: Final = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger")
_INTEGER_BEGINS: Final = ("QLinear", "QGemm", "MatMulInteger", "MatMulNBits", "QAttention")
_HINT_FLOAT: Final = "name the model that it was made from: --reference FP32.onnx"


def load(model: ModelFile, path: str) -> Any:
    """Reads a float32 model and makes it fit for the quantiser.

    Args:
        model: The file, and its external data.
        path: Its name, for messages.

    Returns:
        A ModelProto that holds all its weights: opset 13 or later, every node named, no weight
        listed as an input.

    Raises:
        EngineUnavailableError: The package onnx isn't installed.
        ModelFileError: It is no ONNX model, is quantised already, has nothing to quantise, is too
            large, or isn't float32.
    """
    onnx = onnx_graphs.package()
    size = len(model.data) + sum(map(len, model.external.values()))
    if size > MAX_BYTES:
        raise ModelFileError(
            f"has {size / 2**30:.1f} GiB of weights; the quantiser takes less than 2 GiB", path=path
        )
    proto = _parsed(model, path)
    _fill(onnx, proto, model.external, path)
    _require_float(onnx, proto, path)
    proto = _upgraded(proto, path)
    _weights_are_no_inputs(proto)
    _name_nodes(proto)
    return proto


def operators(proto: Any) -> Counter[str]:
    """Returns how many nodes of each type the main graph has, without the quantiser's own."""
    helpers = ("QuantizeLinear", "DequantizeLinear")
    return Counter(node.op_type for node in proto.graph.node if node.op_type not in helpers)


def _parsed(model: ModelFile, path: str) -> Any:
    proto = onnx_graphs.parse(model, path)
    if not proto.graph.node:
        raise ModelFileError("is no ONNX model: its graph is empty", path=path)
    return proto


def _fill(onnx: Any, proto: Any, external: Mapping[str, bytes], path: str) -> None:
    """Puts external data into the message, as the file says where it lies."""
    from onnx.external_data_helper import ExternalDataInfo

    for _, tensor in onnx_graphs.tensors(proto):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        info = ExternalDataInfo(tensor)
        start = info.offset or 0
        data = external.get(info.location, b"")
        end = start + info.length if info.length else len(data)
        if info.location not in external or end > len(data):
            raise ModelFileError(
                f"the external data of {tensor.name!r} is not all there", path=path
            )
        tensor.raw_data = data[start:end]
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _require_float(onnx: Any, proto: Any, path: str) -> None:
    found = operators(proto)
    integer = [
        node.op_type
        for node in proto.graph.node
        if node.op_type in _INTEGER or node.op_type.startswith(_INTEGER_BEGINS)
    ]
    if integer:
        raise ModelFileError(
            f"is quantised already: it has {len(integer)} nodes such as {integer[0]}",
            path=path,
            hint=_HINT_FLOAT,
        )
    half = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    if any(tensor.data_type in half for _, tensor in onnx_graphs.tensors(proto)):
        raise ModelFileError("has 16-bit weights, it must be float32", path=path, hint=_HINT_FLOAT)
    if not any(kind in found for kind in WEIGHTED):
        there = ", ".join(sorted(found))
        raise ModelFileError(
            f"has nothing to quantise: none of {', '.join(WEIGHTED)} is among its operators "
            f"({there})",
            path=path,
        )


def _upgraded(proto: Any, path: str) -> Any:
    version = next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), 0)
    if version >= PER_CHANNEL_OPSET:
        return proto
    from onnx import version_converter

    try:
        return version_converter.convert_version(proto, PER_CHANNEL_OPSET)
    except Exception as error:  # the converter is native code and raises what it likes
        raise ModelFileError(
            f"has opset {version} and can't be converted to {PER_CHANNEL_OPSET}: {error}",
            path=path,
            hint=f"export it with opset {PER_CHANNEL_OPSET} or later",
        ) from error


def _weights_are_no_inputs(proto: Any) -> None:
    """Before IR version 4 weights were listed among the inputs too, which hinders fusion."""
    weights = {one.name for one in proto.graph.initializer}
    true_inputs = [one for one in proto.graph.input if one.name not in weights]
    if len(true_inputs) < len(proto.graph.input):
        del proto.graph.input[:]
        proto.graph.input.extend(true_inputs)
        proto.ir_version = max(proto.ir_version, 4)


def _name_nodes(proto: Any) -> None:
    """Names the nodes that have no name of their own, so that each can be excluded."""
    taken = {node.name for node in proto.graph.node} | {""}
    seen = {""}
    for index, node in enumerate(proto.graph.node):
        if node.name in seen:
            name = f"{node.op_type}_{index}"
            while name in taken:
                name += "_"
            node.name = name
            taken.add(name)
        seen.add(node.name)
