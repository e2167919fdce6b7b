"""What one step of quantisation is worth in each output of an engine's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs

if TYPE_CHECKING:
    from edge_agent.backends.base import ModelFile
    from edge_agent.description import EngineFile, ModelDescription

# They move values and change none.
_MOVES: Final = ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")
# Place of the output's scale among the inputs, in operators that quantise what they make.
# Source: ONNX operators; com.microsoft contrib operators of ONNX Runtime.
_SCALE_AT: Final = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QGemm": 7,
    "QLinearGlobalAveragePool": 3,
    "QLinearAveragePool": 3,
    "QLinearSigmoid": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSoftmax": 3,
}


def output_steps(
    model: ModelFile, description: ModelDescription, part: EngineFile
) -> dict[str, float | None]:
    """Returns the step of each output, by the names of model.yaml.

    Args:
        model: The file that the engine runs.
        description: The model.
        part: The engine's entry in model.yaml.

    Returns:
        The scale of the output's affine quantisation; 1 where the answer itself is the quantised
        whole number; None where the output isn't quantised as one tensor, or softmax or the like
        stands between.

    Raises:
        EngineUnavailableError: The ``onnx`` package isn't installed, or the engine isn't.
        ModelFileError: The file can't be read.
    """
    read = {"onnx": _onnx, "tflite": _tflite}.get(part.engine)
    natives = read(model, part) if read else {}
    steps: dict[str, float | None] = {}
    for spec in description.outputs:
        scale = natives.get(part.outputs.get(spec.name, spec.name))
        is_real = spec.dtype.startswith("float")
        steps[spec.name] = scale if is_real or scale is None else 1.0
    return steps


def _tflite(model: ModelFile, part: EngineFile) -> dict[str, float | None]:
    from edge_agent.backends import tflite

    return {one.name: one.scale for one in tflite.describe(model, part.file)[1]}


def _onnx(model: ModelFile, part: EngineFile) -> dict[str, float | None]:
    graph = onnx_graphs.parse(model, part.file).graph
    producers = {output: node for node in graph.node for output in node.output}
    constants = {one.name: one for one in graph.initializer}
    for node in graph.node:
        value = next((one for one in node.attribute if one.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            constants[node.output[0]] = value.t
    return {
        one.name: _scale(_scale_name(one.name, producers), constants, model) for one in graph.output
    }


def _scale_name(tensor: str, producers: dict[str, Any]) -> str | None:
    """Returns the name of the scale that a tensor was quantised with last."""
    node = producers.get(tensor)
    while node is not None and node.op_type in _MOVES:
        node = producers.get(node.input[0])
    if node is None:
        return None
    if node.op_type == "DequantizeLinear":
        return str(node.input[1])
    place = _SCALE_AT.get(node.op_type)
    return str(node.input[place]) if place is not None and place < len(node.input) else None


def _scale(name: str | None, constants: dict[str, Any], model: ModelFile) -> float | None:
    """Returns a scale's value, None where it isn't one known number."""
    constant = constants.get(name or "")
    if constant is None:
        return None
    onnx = onnx_graphs.package()
    if constant.data_location == onnx.TensorProto.EXTERNAL:
        constant = _inside(constant, model)
    values = onnx.numpy_helper.to_array(constant)
    return float(values.reshape(-1)[0]) if values.size == 1 and values.item() > 0 else None


def _inside(constant: Any, model: ModelFile) -> Any:
    """Returns a tensor with its external data in it."""
    onnx = onnx_graphs.package()
    entry = {one.key: one.value for one in constant.external_data}
    offset = int(entry.get("offset", 0))
    data = model.external[entry["location"]][offset:]
    size = int(entry["length"]) if "length" in entry else len(data)
    return onnx.TensorProto(
        name=constant.name,
        dims=constant.dims,
        data_type=constant.data_type,
        raw_data=data[:size],
    )
