"""The boundary to native engines: one small interface that each of them implements."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.description import EngineFile, ModelDescription
    from edge_agent.types import Tensor


class EngineStatus(Struct, frozen=True):
    """What this machine has of one engine.

    Attributes:
        engine: ``onnx`` or ``tflite``.
        version: Package and version, None where it can't be used.
        problem: Why it can't be used, None where it can.
        hint: What to do about the problem.
    """

    engine: str
    version: str | None
    problem: str | None = None
    hint: str | None = None

    @property
    def available(self) -> bool:
        """Whether the engine can be used here."""
        return self.problem is None


class ModelFile(Struct, frozen=True):
    """The verified bytes that an engine loads; it opens no file itself.

    Attributes:
        data: The model file.
        external: Bytes of external data by the location written in the model file.
    """

    data: bytes
    external: Mapping[str, bytes] = {}


class Session(Protocol):
    """A loaded model, ready to run. Not safe for use by two threads at once."""

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Runs the model once.

        Args:
            inputs: By the names of model.yaml; shape and dtype as described there, the axes in
                the layout that `binding.engine_layout` gives.

        Returns:
            Outputs by the names of model.yaml, in the described dtype and layout; fresh arrays
            that stay valid after the next run.

        Raises:
            TensorError: The engine refuses the inputs.
            EngineFailedError: It took them and failed: out of memory, or a fault in the model.
            ModelFileError: What came out isn't as described.
        """


def package_stamp(name: str) -> str | None:
    """Returns the time and size of a package's first file, None where there is no package."""
    found = find_spec(name)
    if found is None or not found.origin:
        return None
    facts = Path(found.origin).stat()
    return f"{name}:{facts.st_mtime_ns}:{facts.st_size}"


class Backend(Protocol):
    """One engine."""

    def stamp(self) -> str | None:
        """Returns what changes when the engine's package is replaced, without importing it.

        Returns:
            None where no package is found.
        """

    def status(self) -> EngineStatus:
        """Imports the engine if that has not happened yet, and says what is there."""

    def load(
        self, model: ModelFile, description: ModelDescription, part: EngineFile, threads: int
    ) -> Session:
        """Makes a session from verified bytes.

        Args:
            model: The bytes.
            description: What model.yaml says of inputs and outputs.
            part: The entry of model.yaml for this engine.
            threads: How many threads the engine may use.

        Raises:
            EngineUnavailableError: The engine isn't installed here, or doesn't load.
            ModelFileError: The engine refuses the file, or it isn't as described.
        """
