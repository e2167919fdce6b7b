"""What the server tells of itself and its models.

Source: Open Inference Protocol v2; Triton's extensions for model repository, model configuration
and statistics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from edge_agent import __version__
from edge_agent.server.datatypes import DATATYPES
from edge_agent.server.v2_requests import description_of

if TYPE_CHECKING:
    from edge_agent.description import TensorSpec
    from edge_agent.serving.service import Duration, ModelStatistics, ModelStatus

EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)
# <project>_<format>, as the protocol wants it.
PLATFORMS: Final = {"onnx": "onnxruntime_onnx", "tflite": "litert_tflite"}
_DURATIONS: Final = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)


def server() -> dict[str, Any]:
    """Returns the server metadata."""
    return {"name": "edge-agent", "version": __version__, "extensions": EXTENSIONS}


def model(status: ModelStatus, versions: Sequence[str]) -> dict[str, Any]:
    """Returns the metadata of a model.

    Args:
        status: The version that is described.
        versions: Those that can be asked.

    Raises:
        ModelNotReadyError: It was never opened.
    """
    description = description_of(status)
    return {
        "name": status.ref.name,
        "versions": versions,
        "platform": PLATFORMS[_engine(status)],
        "inputs": [_tensor(spec) for spec in description.inputs],
        "outputs": [_tensor(spec) for spec in description.outputs],
    }


def configuration(status: ModelStatus) -> dict[str, Any]:
    """Returns what Triton's model configuration has in common with ours.

    ``max_batch_size`` is 0: every shape is written in full, its batch axis included.

    Raises:
        ModelNotReadyError: It was never opened.
    """
    description = description_of(status)
    return {
        "name": status.ref.name,
        "platform": PLATFORMS[_engine(status)],
        "backend": {"onnx": "onnxruntime", "tflite": "litert"}[_engine(status)],
        "max_batch_size": 0,
        "input": [_config_tensor(spec) for spec in description.inputs],
        "output": [_config_tensor(spec) for spec in description.outputs],
    }


def entry(status: ModelStatus, reason: str) -> dict[str, Any]:
    """Returns an entry of the repository index; members beyond Triton's four are our own."""
    return {
        "name": status.ref.name,
        "version": status.ref.version,
        "state": status.state,
        "reason": reason,
        "digest": status.ref.digest,
        "engine": status.engine,
        "live": status.is_live,
        "aliases": status.aliases,
    }


def statistics(models: Iterable[ModelStatistics]) -> dict[str, Any]:
    """Returns the statistics of models."""
    return {
        "model_stats": [
            {
                "name": one.ref.name,
                "version": one.ref.version,
                "last_inference": one.last_inference_ms,
                "inference_count": one.inference_count,
                "execution_count": one.execution_count,
                "inference_stats": {name: _duration(getattr(one, name)) for name in _DURATIONS},
                "batch_stats": [],
            }
            for one in models
        ]
    }


def _engine(status: ModelStatus) -> str:
    return status.engine or description_of(status).engines[0].engine


def _duration(one: Duration) -> dict[str, int]:
    return {"count": one.count, "ns": one.ns}


def _shape(spec: TensorSpec) -> list[int]:
    return [axis if isinstance(axis, int) else -1 for axis in spec.shape]


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": DATATYPES[spec.dtype], "shape": _shape(spec)}


def _config_tensor(spec: TensorSpec) -> dict[str, Any]:
    data_type = f"TYPE_{DATATYPES[spec.dtype]}"
    return {"name": spec.name, "data_type": data_type, "dims": _shape(spec)}
