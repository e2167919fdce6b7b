"""ONNX Runtime on the CPU. The only file but the quantiser's that imports onnxruntime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from edge_agent.backends.base import EngineStatus, ModelFile, package_stamp
from edge_agent.backends.binding import Bound, NativeTensor, bind, check_outputs
from edge_agent.errors import (
    EngineFailedError,
    EngineUnavailableError,
    ModelFileError,
    TensorError,
)

if TYPE_CHECKING:
    from edge_agent.description import EngineFile, ModelDescription
    from edge_agent.types import Tensor

_DTYPES: Final = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64",
    "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(uint16)": "uint16",
    "tensor(int16)": "int16", "tensor(int32)": "int32", "tensor(int64)": "int64",
    "tensor(bool)": "bool",
}  # fmt: skip
# Source: onnxruntime_session_options_config_keys.h.
_SPINNING: Final = "session.intra_op.allow_spinning"
_HINT: Final = "pip install onnxruntime (on RISC-V: Debian's python3-onnxruntime)"


def runtime() -> Any:
    """Imports the package, with its telemetry switched off.

    ONNX Runtime 1.32 writes a device id and events below ~/.cache/Microsoft and sends them away;
    its own `disable_telemetry_events` comes too late. Nothing leaves a gateway that its owner
    didn't allow.

    Raises:
        EngineUnavailableError: It isn't installed, or its library doesn't load.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except Exception as error:  # a broken package raises anything
        raise EngineUnavailableError(
            f"ONNX Runtime can't be imported: {error}", hint=_HINT
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        raise EngineUnavailableError("onnxruntime is there without its library", hint=_HINT)
    return onnxruntime


def failures() -> tuple[type[Exception], ...]:
    """Returns what ONNX Runtime raises: its exceptions share no base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found = [value for value in vars(state).values() if isinstance(value, type)]
    own = [kind for kind in found if issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError, TypeError)


def _refusals() -> tuple[type[Exception], ...]:
    """What is raised for inputs that don't fit, before the graph runs."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    invalid: type[Exception] = state.InvalidArgument
    return invalid, ValueError, TypeError


class OnnxBackend:
    """Implements `Backend` with ONNX Runtime's CPU execution provider.

    Args:
        spins: Whether its threads keep their CPUs busy while they wait: ONNX Runtime's default,
            the fastest where nothing else runs. Beside other work two threads took twice the CPU
            time and no less wall-clock time.
    """

    def __init__(self, spins: bool = True) -> None:
        self._spins = spins

    def stamp(self) -> str | None:
        """See `Backend.stamp`."""
        return package_stamp("onnxruntime")

    def status(self) -> EngineStatus:
        """See `Backend.status`."""
        try:
            return EngineStatus("onnx", f"onnxruntime {runtime().__version__}")
        except EngineUnavailableError as error:
            return EngineStatus("onnx", None, error.message, error.hint)

    def load(
        self, model: ModelFile, description: ModelDescription, part: EngineFile, threads: int
    ) -> OnnxSession:
        """See `Backend.load`."""
        native = _native_session(model, threads, part.file, spins=self._spins)
        inputs = bind(
            description.inputs, part.inputs, part.layout, _natives(native.get_inputs()), "input"
        )
        outputs = bind(
            description.outputs, part.outputs, part.layout, _natives(native.get_outputs()), "output"
        )
        _compare_dtypes((*inputs, *outputs), part.file)
        return OnnxSession(native, inputs, outputs)


def describe(model: ModelFile, path: str) -> tuple[list[NativeTensor], list[NativeTensor]]:
    """Returns what an ONNX file says of its inputs and outputs.

    Args:
        model: The file.
        path: Its name, for messages.

    Raises:
        EngineUnavailableError: ONNX Runtime isn't installed here, or doesn't load.
        ModelFileError: It refuses the file.
    """
    native = _native_session(model, 1, path)
    return _natives(native.get_inputs()), _natives(native.get_outputs())


def unoptimised_session(path: str) -> Any:
    """Returns a native session on one thread, in which every tensor of the graph is still there.

    Args:
        path: An ONNX file of our own.

    Raises:
        ModelFileError: ONNX Runtime refuses the file.
    """
    ort = runtime()
    options = _options(ort, 1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])
    except failures() as error:
        raise ModelFileError(f"ONNX Runtime refuses the model: {error}") from error


def _options(ort: Any, threads: int) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return options


def _native_session(
    model: ModelFile, threads: int, path: str, *, is_optimised: bool = True, spins: bool = True
) -> Any:
    ort = runtime()
    options = _options(ort, threads)
    if not spins:
        options.add_session_config_entry(_SPINNING, "0")
    if not is_optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if model.external and not hasattr(options, "add_external_initializers_from_files_in_memory"):
        raise ModelFileError(
            f"ONNX Runtime {ort.__version__} takes no external data from memory",
            path=path,
            hint="install a newer one, or store the model without external data",
        )
    if model.external:
        options.add_external_initializers_from_files_in_memory(
            list(model.external),
            list(model.external.values()),
            [len(data) for data in model.external.values()],
        )
    try:
        return ort.InferenceSession(
            model.data, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except failures() as error:
        raise ModelFileError(f"ONNX Runtime refuses the model: {error}", path=path) from error


def _natives(arguments: Any) -> list[NativeTensor]:
    return [
        NativeTensor(
            one.name,
            _DTYPES.get(one.type, one.type),
            tuple(axis if isinstance(axis, int) else None for axis in one.shape),
        )
        for one in arguments
    ]


def _compare_dtypes(bound: tuple[Bound, ...], file: str) -> None:
    for one in bound:
        if one.spec.dtype != one.native.dtype:
            raise ModelFileError(
                f"{one.native.name!r} is {one.native.dtype} in the file, "
                f"model.yaml makes it {one.spec.dtype}",
                path=file,
            )


class OnnxGraph:
    """A graph run node by node as it is written, on one thread: nothing is fused or left out.

    Args:
        model: The file; all its outputs are computed.
        path: Its name, for messages.

    Raises:
        EngineUnavailableError: ONNX Runtime isn't installed here, or doesn't load.
        ModelFileError: It refuses the file.
    """

    def __init__(self, model: ModelFile, path: str) -> None:
        self._native = _native_session(model, 1, path, is_optimised=False)
        self._names = [one.name for one in self._native.get_outputs()]
        self._failures: tuple[type[Exception], ...] = (*failures(), MemoryError)

    def run(self, feed: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns every output by its name in the file.

        Args:
            feed: Inputs by their names in the file.

        Raises:
            EngineFailedError: The inputs don't fit, memory ran out, or the model is at fault.
        """
        try:
            values = self._native.run(self._names, dict(feed))
        except self._failures as error:
            reason = str(error) or "not enough memory"
            raise EngineFailedError(f"ONNX Runtime failed: {reason}") from error
        return dict(zip(self._names, values, strict=True))


class OnnxSession:
    """Implements `Session`."""

    def __init__(self, native: Any, inputs: tuple[Bound, ...], outputs: tuple[Bound, ...]) -> None:
        self._native = native
        self._inputs = inputs
        self._outputs = outputs
        self._native_outputs = [one.native.name for one in outputs]
        self._refusals = _refusals()
        self._failures: tuple[type[Exception], ...] = (*failures(), MemoryError)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Session.run`."""
        feed = {one.native.name: inputs[one.spec.name] for one in self._inputs}
        try:
            values = self._native.run(self._native_outputs, feed)
        except self._refusals as error:
            raise TensorError(f"ONNX Runtime refuses the input: {error}") from error
        except self._failures as error:
            reason = str(error) or "not enough memory"
            raise EngineFailedError(f"ONNX Runtime failed: {reason}") from error
        check_outputs(self._outputs, values, self._inputs, inputs)
        return {
            one.spec.name: one.to_described(value)
            for one, value in zip(self._outputs, values, strict=True)
        }
