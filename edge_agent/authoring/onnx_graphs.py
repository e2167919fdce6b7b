"""ONNX files as graphs, through the ``onnx`` package, which only authoring needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_agent.backends.base import ModelFile
from edge_agent.errors import EngineUnavailableError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
            hint="pip install 'edge-agent[authoring]'",
        ) from error
    return onnx


def parse(model: ModelFile, path: str) -> Any:
    """Returns an ONNX file as a ``ModelProto``; external data stays outside.

    Args:
        model: The file.
        path: Its name, for messages.

    Raises:
        EngineUnavailableError: The ``onnx`` package isn't installed, or doesn't load.
        ModelFileError: It is no ONNX file.
    """
    onnx = package()
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load_model_from_string(model.data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise ModelFileError(f"is no ONNX file: {error}", path=path) from error


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
