"""What a model file says of itself, whichever engine reads it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, get_args

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.source_files import ENGINES, parse_any_labels
from edge_agent.description import DType
from edge_agent.errors import BadInputError, ModelFileError
from edge_agent.labels import MAX_LABELS_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_agent.backends.base import ModelFile
    from edge_agent.backends.binding import NativeTensor

_MAX_AXES: Final = 8
_MAX_ARCHIVE_BYTES: Final = 2 * MAX_LABELS_BYTES
# Ultralytics writes its task and class names into the ONNX file's metadata.
_TASKS: Final = {
    "classify": "image-classification",
    "detect": "object-detection",
    "segment": "instance-segmentation",
    "pose": "pose-estimation",
    "obb": "oriented-object-detection",
}


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model file says.

    Attributes:
        engine: Which engine reads it.
        inputs: Its inputs.
        outputs: Its outputs.
        axes: The file's own names of open axes, by tensor; None for an axis without one.
        labels: Class names in its metadata, none where there are none.
        task: Its task by its metadata, None where that tells nothing.
        is_float: Whether it computes in floats alone, so that others can be compared with it.
    """

    engine: str
    inputs: tuple[NativeTensor, ...]
    outputs: tuple[NativeTensor, ...]
    axes: Mapping[str, tuple[str | None, ...]]
    labels: tuple[str, ...] = ()
    task: str | None = None
    is_float: bool = False


def engine_of(path: Path) -> str:
    """Returns the engine that reads a file, by its ending.

    Raises:
        BadInputError: It is neither `.onnx` nor `.tflite`.
    """
    engine = ENGINES.get(path.suffix.lower())
    if engine is None:
        raise BadInputError(
            "is neither .onnx nor .tflite",
            path=str(path),
            hint="export the model to ONNX or TensorFlow Lite first",
        )
    return engine


def read_facts(model: ModelFile, path: Path) -> ModelFacts:
    """Reads what a model file says of itself.

    Args:
        model: The file.
        path: Where it is; its ending says which engine reads it.

    Raises:
        BadInputError: Its name has another ending.
        ModelFileError: The engine refuses it, or a tensor is one that model.yaml can't describe.
        EngineUnavailableError: The engine, or the package `onnx`, isn't installed here.
    """
    facts = _of_onnx(model, path) if engine_of(path) == "onnx" else _of_tflite(model, path)
    for one in (*facts.inputs, *facts.outputs):
        if one.dtype not in get_args(DType) or len(one.shape) > _MAX_AXES:
            raise ModelFileError(
                f"{one.name!r} is {one.dtype} with {len(one.shape)} axes, which model.yaml can't "
                "describe",
                path=str(path),
                hint=f"it takes at most {_MAX_AXES} axes of {', '.join(get_args(DType))}",
            )
    return facts


def _of_onnx(model: ModelFile, path: Path) -> ModelFacts:
    from edge_agent.backends import onnx

    proto = onnx_graphs.parse(model, str(path))
    inputs, outputs = onnx.describe(model, str(path))
    metadata = {one.key: one.value for one in proto.metadata_props}
    return ModelFacts(
        "onnx",
        tuple(inputs),
        tuple(outputs),
        {one.name: _axis_names(one) for one in (*proto.graph.input, *proto.graph.output)},
        _names(metadata.get("names", "")),
        _TASKS.get(metadata.get("task", "")),
        not onnx_graphs.is_quantised(proto),
    )


def _axis_names(value: Any) -> tuple[str | None, ...]:
    return tuple(axis.dim_param or None for axis in value.type.tensor_type.shape.dim)


def _names(text: str) -> tuple[str, ...]:
    """Returns class names that were written as a Python mapping of indices."""
    if not text or len(text) > MAX_LABELS_BYTES:
        return ()
    try:
        value = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ()
    if isinstance(value, dict) and list(value) == list(range(len(value))):
        value = list(value.values())
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return ()
    return tuple(value) if _is_unicode("".join(value)) else ()


def _is_unicode(text: str) -> bool:
    """Whether a text can be written: Python's literals can have surrogates without their pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _of_tflite(model: ModelFile, path: Path) -> ModelFacts:
    from edge_agent.backends import tflite

    inputs, outputs = tflite.describe(model, str(path))
    return ModelFacts(
        "tflite", tuple(inputs), tuple(outputs), {}, _packed_labels(model.data, str(path))
    )


def _packed_labels(data: bytes, path: str) -> tuple[str, ...]:
    """Returns the labels in the archive that TensorFlow Lite's metadata appends to a file.

    Source: TensorFlow Lite Metadata, "Pack the associated files".
    """
    from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

    try:
        with ZipFile(BytesIO(data[-_MAX_ARCHIVE_BYTES:])) as archive:
            found = [
                one
                for one in archive.infolist()
                if one.filename.endswith(".txt") and "label" in one.filename.lower()
            ]
            if len(found) != 1 or found[0].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                return ()
            with archive.open(found[0]) as stream:
                packed = stream.read(MAX_LABELS_BYTES + 1)
        return parse_any_labels(packed, path) if len(packed) <= MAX_LABELS_BYTES else ()
    except Exception:  # noqa: BLE001 - no archive, or a damaged one, of which zipfile raises anything
        return ()  # the file says nothing
