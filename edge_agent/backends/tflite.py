"""LiteRT (TensorFlow Lite) on the CPU. The only file that imports a TFLite runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
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

_HINT: Final = "pip install ai-edge-litert (there is no wheel for RISC-V)"
# Held while descriptor 2 points elsewhere: two at once would leave it there.
_STDERR: Final = Lock()


def _import() -> tuple[Any, str]:
    """Imports ai-edge-litert, or tflite-runtime where NumPy is below 2.

    tflite-runtime 2.14 was built against NumPy 1: beside NumPy 2 it imports, and fails when an
    interpreter is made.

    Returns:
        The module with ``Interpreter``, and the package's name with its version.

    Raises:
        EngineUnavailableError: Neither can be used; the message says why.
    """
    from importlib.metadata import version

    import numpy as np

    try:
        from ai_edge_litert import interpreter

        return interpreter, f"ai-edge-litert {version('ai-edge-litert')}"
    except Exception as error:  # noqa: BLE001 - a broken package raises anything
        reason = str(error)
    if int(np.__version__.split(".")[0]) >= 2:
        raise EngineUnavailableError(
            f"LiteRT can't be imported: {reason} (tflite-runtime needs NumPy below 2, "
            f"this is {np.__version__})",
            hint=_HINT,
        )
    try:
        from tflite_runtime import interpreter

        return interpreter, f"tflite-runtime {version('tflite-runtime')}"
    except Exception as error:  # as above
        raise EngineUnavailableError(
            f"no TFLite runtime can be imported: {reason}; {error}", hint=_HINT
        ) from error


class TfliteBackend:
    """Implements `Backend` with the TFLite interpreter and its XNNPACK delegate."""

    def stamp(self) -> str | None:
        """See `Backend.stamp`."""
        return package_stamp("ai_edge_litert") or package_stamp("tflite_runtime")

    def status(self) -> EngineStatus:
        """See `Backend.status`."""
        try:
            return EngineStatus("tflite", _import()[1])
        except EngineUnavailableError as error:
            return EngineStatus("tflite", None, error.message, error.hint)

    def load(
        self, model: ModelFile, description: ModelDescription, part: EngineFile, threads: int
    ) -> TfliteSession:
        """See `Backend.load`."""
        native = _interpreter(model, threads, part.file)
        details = native.get_input_details(), native.get_output_details()
        inputs = bind(description.inputs, part.inputs, part.layout, _natives(details[0]), "input")
        outputs = bind(
            description.outputs, part.outputs, part.layout, _natives(details[1]), "output"
        )
        return TfliteSession(
            native, _ports(inputs, details[0], part.file), _ports(outputs, details[1], part.file)
        )


def describe(model: ModelFile, path: str) -> tuple[list[NativeTensor], list[NativeTensor]]:
    """Returns what a TFLite file says of its inputs and outputs.

    Args:
        model: The file.
        path: Its name, for messages.

    Raises:
        EngineUnavailableError: No TFLite runtime is installed here, or it doesn't load.
        ModelFileError: It refuses the file.
    """
    native = _interpreter(model, 1, path)
    return _natives(native.get_input_details()), _natives(native.get_output_details())


def _interpreter(model: ModelFile, threads: int, path: str) -> Any:
    module, _ = _import()
    try:
        with _quiet():
            native = module.Interpreter(model_content=model.data, num_threads=threads)
            native.allocate_tensors()
    except (ValueError, RuntimeError, TypeError) as error:
        raise ModelFileError(f"LiteRT refuses the model: {error}", path=path) from error
    return native


def _ports(bound: tuple[Bound, ...], details: Any, file: str) -> list[_Port]:
    # An input and an output may have one name: each side has its own table.
    by_name = {detail["name"]: detail for detail in details}
    return [_Port(one, by_name[one.native.name], file) for one in bound]


def _natives(details: Any) -> list[NativeTensor]:
    import numpy as np

    return [
        NativeTensor(
            one["name"],
            np.dtype(one["dtype"]).name,
            tuple(int(axis) if axis >= 0 else None for axis in one["shape_signature"])
            if len(one["shape_signature"])
            else tuple(int(axis) for axis in one["shape"]),
            float(one["quantization"][0]) or None,
            int(one["quantization"][1]),
        )
        for one in details
    ]


class _Port:
    """One tensor of the interpreter, with its affine quantisation where it has one.

    Source: TensorFlow Lite 8-bit quantization specification, ``real = (q - zero_point) * scale``.
    """

    def __init__(self, bound: Bound, detail: Any, file: str) -> None:
        import numpy as np

        self.name = bound.spec.name
        self.bound = bound
        self.index: int = detail["index"]
        self.dtype = np.dtype(bound.spec.dtype)
        self.native_dtype = np.dtype(detail["dtype"])
        # None while the interpreter may have another shape than any that ran.
        self.shape: tuple[int, ...] | None = tuple(int(axis) for axis in detail["shape"])
        self.scale, self.zero_point = detail["quantization"]
        if self.dtype != self.native_dtype and not self._is_quantised():
            raise ModelFileError(
                f"{bound.native.name!r} is {self.native_dtype} without quantisation in the file, "
                f"model.yaml makes it {self.dtype}",
                path=file,
            )

    def _is_quantised(self) -> bool:
        return bool(self.scale) and self.dtype.kind == "f" and self.native_dtype.kind in "iu"

    def to_native(self, value: Tensor) -> Tensor:
        import numpy as np

        if self.dtype == self.native_dtype:
            return value
        bounds = np.iinfo(self.native_dtype)
        scaled = np.multiply(value, np.float32(1 / self.scale), dtype=np.float32)
        np.rint(scaled, out=scaled)
        scaled += self.zero_point
        np.clip(scaled, bounds.min, bounds.max, out=scaled)
        return scaled.astype(self.native_dtype)

    def from_native(self, value: Tensor) -> Tensor:
        import numpy as np

        value = self.bound.to_described(value)
        if self.dtype == self.native_dtype:
            return value
        real = (value.astype(np.float32) - self.zero_point) * np.float32(self.scale)
        return np.asarray(real, dtype=self.dtype)


class TfliteSession:
    """Implements `Session`."""

    def __init__(self, native: Any, inputs: list[_Port], outputs: list[_Port]) -> None:
        self._native = native
        self._inputs = inputs
        self._outputs = outputs

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Session.run`."""
        try:
            self._resize(inputs)
            for port in self._inputs:
                self._native.set_tensor(port.index, port.to_native(inputs[port.name]))
        except (ValueError, RuntimeError) as error:
            raise TensorError(f"LiteRT refuses the input: {error}") from error
        except MemoryError as error:
            raise EngineFailedError("LiteRT failed: not enough memory") from error
        values = self._invoke()
        check_outputs(
            [port.bound for port in self._outputs],
            values,
            [port.bound for port in self._inputs],
            inputs,
        )
        return {
            port.name: port.from_native(value)
            for port, value in zip(self._outputs, values, strict=True)
        }

    def _invoke(self) -> list[Tensor]:
        try:
            self._native.invoke()
            return [self._native.get_tensor(port.index) for port in self._outputs]
        except (ValueError, RuntimeError, MemoryError) as error:
            reason = str(error) or "not enough memory"
            raise EngineFailedError(f"LiteRT failed: {reason}") from error

    def _resize(self, inputs: Mapping[str, Tensor]) -> None:
        """Tells the interpreter the lengths of open axes where they changed."""
        changed = [port for port in self._inputs if inputs[port.name].shape != port.shape]
        for port in changed:
            port.shape = None
            shape = inputs[port.name].shape
            self._native.resize_tensor_input(port.index, list(shape), strict=True)
        if changed:
            self._native.allocate_tensors()
        for port in changed:
            port.shape = inputs[port.name].shape


@contextmanager
def _quiet() -> Iterator[None]:
    """Drops the INFO lines that the runtime writes to the process's stderr; it has no switch.

    Anything else that was written meanwhile is passed on. A process that was started without a
    stderr may have another file under its number, which is left alone.
    """
    if sys.__stderr__ is None or sys.stderr is None:
        yield
        return
    with _STDERR, _caught():
        yield


@contextmanager
def _caught() -> Iterator[None]:
    sys.stderr.flush()
    saved = os.dup(2)
    caught = os.memfd_create("litert-log")
    try:
        os.dup2(caught, 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            text = os.pread(caught, 1 << 20, 0)
            kept = [line for line in text.splitlines(True) if not line.startswith(b"INFO:")]
            if kept:
                os.write(2, b"".join(kept))
    finally:
        os.close(saved)
        os.close(caught)
