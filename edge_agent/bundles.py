"""A trusted bundle: verified bytes, and what its model.yaml says of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from io import BytesIO
from typing import TYPE_CHECKING, Final

from edge_agent import model_yaml, yaml_subset
from edge_agent.backends.base import ModelFile
from edge_agent.description import Classification
from edge_agent.errors import DescriptionError, MismatchError
from edge_agent.types import ModelRef
from edge_signing.closing import Closing

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from edge_agent.description import EngineFile, ModelDescription
    from edge_signing.bundle import VerifiedBundle
    from edge_signing.keyring import Keyring
    from edge_signing.trust import Purpose

DESCRIPTION_FILE: Final = "model.yaml"
MAX_MODEL_BYTES: Final = 4 * 1024**3
MAX_PROBE_BYTES: Final = 256 * 1024**2

Progress = Callable[[int, int], None]


class Contents(ABC):
    """A model with everything that decides its answers: a bundle, or a project that becomes one.

    Attributes:
        description: Its model.yaml.
        ref: Name, version and digest; a project has no digest.
    """

    description: ModelDescription
    ref: ModelRef

    @abstractmethod
    def read(self, name: str, max_bytes: int) -> bytes:
        """Returns a file's bytes.

        Args:
            name: Its path inside the bundle.
            max_bytes: The largest size that is taken.
        """

    def labels(self) -> tuple[str, ...]:
        """Returns the class names, none for a raw model."""
        from edge_agent.labels import MAX_LABELS_BYTES, parse_labels

        rule = self.description.postprocess
        if not isinstance(rule, Classification):
            return ()
        return parse_labels(self.read(rule.labels, MAX_LABELS_BYTES), rule.labels)

    def model_file(self, part: EngineFile) -> ModelFile:
        """Reads what an engine loads: the model file, and the external data that it names.

        Raises:
            edge_signing.errors.BundleInvalid: The model names data that isn't there.
        """
        data = self.read(part.file, MAX_MODEL_BYTES)
        if part.engine != "onnx":
            return ModelFile(data)
        from edge_signing.external_data import external_files, resolve

        return ModelFile(
            data,
            {
                location: self.read(resolve(part.file, location), MAX_MODEL_BYTES)
                for location in sorted(external_files(BytesIO(data), len(data)))
            },
        )


class Bundle(Contents, Closing):
    """A bundle that passed every check. Close it, or use it as a context manager."""

    def __init__(self, verified: VerifiedBundle) -> None:
        data = verified.read(DESCRIPTION_FILE, yaml_subset.MAX_BYTES + 1)
        self.verified = verified
        self.description = model_yaml.parse(data)
        self.ref = ModelRef(verified.name, self.description.version, verified.digest)
        if self.description.name != verified.name:
            raise MismatchError(
                f"the signature is for {verified.name!r}, model.yaml is for "
                f"{self.description.name!r}",
                hint="sign the bundle again",
            )
        require_files(self.description, verified.names())

    def close(self) -> None:
        """Closes the bundle; closing twice does nothing."""
        self.verified.close()

    def read(self, name: str, max_bytes: int) -> bytes:
        """Returns a file's bytes, hashed as they are read: exactly what was signed."""
        return self.verified.read(name, max_bytes)


def require_files(description: ModelDescription, names: Collection[str]) -> None:
    """Checks that every file that model.yaml names is there.

    Args:
        description: The model.yaml.
        names: The bundle's files.

    Raises:
        DescriptionError: One is missing.
    """
    for name in named_files(description):
        if name not in names:
            raise DescriptionError(f"names the file {name!r}, which the bundle lacks")


def named_files(description: ModelDescription) -> list[str]:
    """Returns the files that a model.yaml names; one may come twice."""
    names = [part.file for part in description.engines]
    if isinstance(description.postprocess, Classification):
        names.append(description.postprocess.labels)
    golden = description.golden
    if golden:
        names += [golden.image] if golden.image else []
        names += golden.tensors.values()
        names += [output.file for output in golden.outputs]
    return names


def open_bundle(
    path: Path,
    keyring: Keyring,
    now: datetime,
    purpose: Purpose,
    progress: Progress | None = None,
) -> Bundle:
    """Opens a bundle from a directory or a ``.tar`` of its OCI layout, if it can be trusted.

    Args:
        path: Where it is.
        keyring: Who is trusted with what.
        now: The time, never before the agent's own release.
        purpose: Whether it is to be installed or loaded.
        progress: Called with bytes done and bytes in all while hashing.

    Raises:
        edge_signing.errors.SigningError: It can't be trusted; the error says why.
        DescriptionError: Its model.yaml breaks a rule.
        MismatchError: The signed name isn't the one in model.yaml.
    """
    from edge_signing.bundle import verify
    from edge_signing.sources import open_source

    source = open_source(path)
    try:
        return Bundle(verify(source, keyring, now, purpose, progress))
    except BaseException:
        source.close()
        raise
