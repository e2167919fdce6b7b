"""ONNX files, through the ``onnx`` package, which only authoring needs: nodes and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from edge_agent.backends.base import ModelFile
from edge_agent.errors import EngineUnavailableError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_QUANTISING: Final = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger",
     "MatMulInteger", "MatMulNBits", "QGemm", "QAttention", "QEmbedLayerNormalization"}
)  # fmt: skip


def package() -> Any:
    """Imports the ``onnx`` package.

    Raises:
        EngineUnavailableError: It isn't installed, or doesn't load.
    """
    try:
        import onnx
    except Exception as error:  # a broken package raises anything
        raise EngineUnavailableError(
            f"the onnx package can't be imported: {error}",
            hint="pip install onnx",
        ) from error
    return onnx


def parse(model: ModelFile, path: str) -> Any:
    """Returns an ONNX file as a ``ModelProto``; external data stays outside.

    Args:
        model: The file.
        path: Its name, for messages.

    Raises:
        EngineUnavailableError: The ``onnx`` package isn't installed, or doesn't load.
        ModelFileError: It is none, has no graph, or names that are no text.
    """
    onnx = package()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.load_model_from_string(model.data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"is no ONNX file: {error}", path=path) from error
    problem = None if proto.HasField("graph") else "the ONNX file has no graph"
    if not all(isinstance(text, str) for text in _texts(proto)):
        problem = "the ONNX file is damaged: a name in it is not UTF-8"
    if problem:
        raise ModelFileError(problem, path=path, hint="export the model again")
    return proto


def exposing(proto: Any, external: Mapping[str, bytes], tensors: Sequence[str]) -> ModelFile:
    """Returns a model with these tensors of its graph as its outputs, in place of its own.

    Args:
        proto: The model, a ``ModelProto``; it isn't changed.
        external: Its external data.
        tensors: Names of tensors of the main graph.
    """
    onnx = package()
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors)
    return ModelFile(copy.SerializeToString(), external)


def _texts(model: Any) -> Iterator[Any]:
    """Yields the names in a ModelProto: protobuf gives bytes for one that is not UTF-8."""
    for node in nodes(model):
        yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
    for name, _ in tensors(model):
        yield name
    for one in (*model.graph.input, *model.graph.output):
        yield one.name
        yield from (axis.dim_param for axis in one.type.tensor_type.shape.dim)
    for one in model.metadata_props:
        yield from (one.key, one.value)
    yield from (one.domain for one in model.opset_import)
    for one in model.functions:
        yield from (one.domain, one.name)


def is_quantised(model: Any) -> bool:
    """Tells whether any node of a ModelProto computes with quantised numbers."""
    return any(
        node.op_type in _QUANTISING or node.op_type.startswith("QLinear") for node in nodes(model)
    )


def nodes(model: Any) -> Iterator[Any]:
    """Yields every node of a ModelProto, those of subgraphs and functions too."""
    todo = [model.graph, *model.functions]
    while todo:
        for node in todo.pop().node:
            yield node
            for attribute in node.attribute:
                todo += [attribute.g] if attribute.HasField("g") else []
                todo += attribute.graphs


def tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """Yields every constant tensor of a ModelProto, with a name for people."""
    todo = [model.graph]
    for graph in todo:
        yield from ((one.name, one) for one in graph.initializer)
        yield from ((one.values.name, one.values) for one in graph.sparse_initializer)
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield node.output[0] if node.output else node.name, attribute.t
                yield from ((one.name, one) for one in attribute.tensors)
                todo += [attribute.g] if attribute.HasField("g") else []
                todo += attribute.graphs
