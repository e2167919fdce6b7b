"""ONNX Runtime's quantiser. Beside the ONNX backend, the only file that imports onnxruntime.

Its parts are put together here rather than with its `quantize_static`: that one keeps the outputs
of all layers for all samples in memory, writes to standard output, and lets a histogram grow
without bound where a first sample is much darker than the others.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs, staging
from edge_agent.authoring.quantising import node_choice
from edge_agent.backends import onnx as backend
from edge_agent.errors import AgentError, BadInputError, ModelFileError

if TYPE_CHECKING:
    from edge_agent.types import Tensor

Ranges = dict[str, Any]

# Bins from end to end of a tensor's values, for percentile and entropy.
_BINS: Final = 2048
_ENTROPY_BINS: Final = 512
_LEVELS: Final = 256
# What the package leaves in a model's metadata, to find its own work again.
_MARKS: Final = ("onnx.infer", "onnx.quant.pre_process")
_ERRORS_ONLY: Final = 4


@dataclass(frozen=True, slots=True)
class Scheme:
    """How real numbers become eight bits.

    Attributes:
        types: ``u8s8`` (activations uint8, weights int8) or ``s8s8``.
        per_channel: One scale for each output channel of a weight, else one for the tensor.
        reduce_range: Weights keep to 7 bits, [-64, 64].
        exclude: Names of nodes that stay float.
    """

    types: str = "u8s8"
    per_channel: bool = True
    reduce_range: bool = False
    exclude: tuple[str, ...] = ()


def prepare(proto: Any, path: str) -> Any:
    """Fuses what a runtime would fuse (batch normalisation into weights) and infers shapes.

    Args:
        proto: The model, as `float_model.load` returns it.
        path: Its name, for messages.

    Raises:
        ModelFileError: ONNX Runtime refuses the model.
    """
    package = _package()
    onnx = onnx_graphs.package()
    with _quiet(path, "export it again: with another opset, or fixed shapes") as folder:
        onnx.save(proto, str(folder / "given.onnx"))
        # Symbolic inference would need sympy, and helps only where a shape is computed.
        package.quant_pre_process(
            str(folder / "given.onnx"), str(folder / "ready.onnx"), skip_symbolic_shape=True
        )
        return onnx.load(str(folder / "ready.onnx"))


class Calibrater:
    """Collects the ranges of a model's tensors, one sample at a time, on one thread.

    How sums are split among threads would change their last digits, and with them the file.

    Args:
        proto: The prepared model.
        method: ``minmax``, ``percentile`` or ``entropy``.
        percentile: Share of the values, in percent, that the range of ``percentile`` covers.
        bounds: The smallest and largest values, for the methods that make histograms of them.
        folder: Where it may write.
    """

    def __init__(
        self,
        proto: Any,
        method: str,
        percentile: float,
        bounds: Ranges | None,
        folder: Path,
    ) -> None:
        calibrate = _package().calibrate
        onnx_graphs.package().save(proto, str(folder / "model.onnx"))
        kinds = {
            "minmax": (calibrate.MinMaxCalibrater, {}),
            "percentile": (calibrate.PercentileCalibrater, {"num_bins": _BINS}),
            "entropy": (calibrate.EntropyCalibrater, {"num_bins": _ENTROPY_BINS}),
        }
        kind, options = kinds[method]
        augmented = str(folder / "augmented.onnx")
        self._native = kind(folder / "model.onnx", _operator_types(), augmented, **options)
        self._native.augment_graph()
        self._native.infer_session = backend.unoptimised_session(augmented)
        if method != "minmax":
            self._native.collector = calibrate.HistogramCollector(
                method=method,
                symmetric=False,
                num_bins=options["num_bins"],
                num_quantized_bins=_LEVELS,
                percentile=percentile,
                scenario="same",
            )
            self._native.collector.histogram_dict = _empty_histograms(
                bounds or {}, options["num_bins"]
            )

    def collect(self, inputs: Mapping[str, Tensor], source: str) -> None:
        """Runs one sample; only the ranges, or the histograms, are kept of it.

        Args:
            inputs: By the names in the file.
            source: The sample's name, for messages.

        Raises:
            BadInputError: The model can't be run on it.
        """
        try:
            with redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NaNs are found by `node_choice.finite`
                self._native.collect_data(_Once(inputs))
        except backend.failures() as error:
            raise BadInputError(f"the model can't be run on it: {error}", path=source) from error

    def ranges(self) -> Ranges:
        """Returns a `TensorData` with ``lowest`` and ``highest`` for each tensor."""
        with redirect_stdout(io.StringIO()):
            return dict(self._native.compute_data().items())


def quantise(proto: Any, scheme: Scheme, ranges: Ranges, path: str) -> bytes:
    """Makes the INT8 model with QuantizeLinear and DequantizeLinear nodes.

    Args:
        proto: The prepared model; it is changed.
        scheme: How.
        ranges: What `Calibrater.ranges` returned.
        path: The model's name, for messages.

    Returns:
        An ONNX file; the same for the same model, ranges and versions of the packages.

    Raises:
        ModelFileError: ONNX Runtime can't quantise it, or a range that it needs isn't finite.
    """
    package = _package()
    usable = node_choice.finite(proto, ranges, scheme.exclude, path)
    kinds = package.QuantType
    activations = kinds.QUInt8 if scheme.types == "u8s8" else kinds.QInt8
    with _quiet(path, "leave the node that it names out with --exclude"):
        quantizer = package.QDQQuantizer(
            proto,
            scheme.per_channel,
            scheme.reduce_range,
            kinds.QInt8,
            activations,
            package.calibrate.TensorsData(package.CalibrationMethod.MinMax, usable),
            [],
            list(scheme.exclude),
            _operator_types(),
            {},
        )
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    return _tidy(quantizer.model.model)


def _tidy(proto: Any) -> bytes:
    """Returns the file without what its maker left in it, in an order that is always the same."""
    graph = proto.graph
    used = {node.domain for node in graph.node} | {"", "ai.onnx"}
    if not any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        kept = [one for one in proto.opset_import if one.domain in used]
        del proto.opset_import[:]
        proto.opset_import.extend(kept)
    authors = [one for one in proto.metadata_props if one.key not in _MARKS]
    del proto.metadata_props[:]
    proto.metadata_props.extend(authors)
    del graph.value_info[:]
    weights = sorted(graph.initializer, key=lambda one: one.name)
    del graph.initializer[:]
    graph.initializer.extend(weights)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _package() -> Any:
    """Imports the package, after the backend has switched ONNX Runtime's telemetry off."""
    # Its sessions have no options of ours; what they warn of goes past Python to standard error.
    backend.runtime().set_default_logger_severity(_ERRORS_ONLY)
    from onnxruntime import quantization

    return quantization


def _operator_types() -> list[str]:
    registry = _package().registry
    return sorted({*registry.QDQRegistry, *registry.QLinearOpsRegistry})


def _empty_histograms(bounds: Ranges, bins: int) -> dict[str, tuple[Any, ...]]:
    """Returns histograms that are wide enough from the start, so that none grows."""
    import numpy as np

    made = {}
    for name, data in bounds.items():
        low, high = (np.float32(np.squeeze(one)) for one in (data.lowest, data.highest))
        top = np.float32(max(abs(low), abs(high)))
        edges = np.linspace(-top, top, bins + 1, dtype=np.float32)
        made[name] = (np.zeros(bins, np.int64), edges, low, high, top)
    return made


class _Once:
    """A reader of one sample, as ONNX Runtime wants it."""

    def __init__(self, inputs: Mapping[str, Tensor]) -> None:
        self._inputs: Mapping[str, Tensor] | None = inputs

    def get_next(self) -> Mapping[str, Tensor] | None:
        inputs, self._inputs = self._inputs, None
        return inputs


@contextmanager
def _quiet(path: str, hint: str) -> Iterator[Path]:
    """Yields a folder that goes away; what the package prints and logs meanwhile is dropped.

    Args:
        path: The model's name, for messages.
        hint: What its author can do where the package fails.

    Raises:
        ModelFileError: The package failed.
    """
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with staging.scratch() as folder, redirect_stdout(io.StringIO()):
            yield folder
    except (AgentError, OSError, MemoryError):
        raise
    except Exception as error:  # the package asserts, and looks up what isn't there
        reason = str(error) or type(error).__name__
        raise ModelFileError(
            f"ONNX Runtime's quantiser fails on it: {reason}",
            path=path,
            hint=hint,
        ) from error
    finally:
        logging.disable(before)
