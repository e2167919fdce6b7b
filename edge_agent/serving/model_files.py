"""A verified bundle -> sealed memory that a worker may read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Final

import msgspec

from edge_agent.bundles import MAX_MODEL_BYTES, named_files
from edge_agent.errors import UnavailableError
from edge_agent.workers.answer_form import answer_form
from edge_agent.workers.work import ModelFiles
from edge_signing.external_data import external_files, resolve

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from edge_agent.description import EngineFile

_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def seal(bundle: Bundle, part: EngineFile) -> ModelFiles:
    """Copies what one engine needs of a bundle into sealed memory, hashed as it is read.

    Args:
        bundle: A trusted one.
        part: The engine's entry in its model.yaml.

    Returns:
        The files; `close` gives their memory back.

    Raises:
        UnavailableError: There is no memory for them.
        edge_signing.errors.SigningError: A file changed since it was verified.
    """
    files: dict[str, int] = {}
    try:
        for name in _wanted(bundle, part, lambda name: _add(bundle, name, files)):
            if name not in files:
                _add(bundle, name, files)
    except BaseException as error:
        _close_all(files)
        if isinstance(error, OSError | MemoryError):
            raise UnavailableError(
                f"no memory for the files of {bundle.ref.name}: {error}"
            ) from error
        raise
    return ModelFiles(
        bundle.ref.digest,
        bundle.ref.name,
        bundle.ref.version,
        msgspec.msgpack.encode(bundle.description),
        part.engine,
        files,
        answer_form(bundle.description),
    )


def close(files: ModelFiles) -> None:
    """Closes the descriptors; a worker that has received them keeps its own."""
    _close_all(files.files)


def _close_all(files: dict[str, int]) -> None:
    for descriptor in files.values():
        with suppress(OSError):
            os.close(descriptor)
    files.clear()


def _wanted(bundle: Bundle, part: EngineFile, add: Callable[[str], bytes]) -> list[str]:
    """Returns the files that the engine and the probe read; not those of other engines."""
    others = {one.file for one in bundle.description.engines if one.file != part.file}
    names = [name for name in named_files(bundle.description) if name not in others]
    if part.engine != "onnx":
        return names
    data = add(part.file)
    locations = external_files(BytesIO(data), len(data))
    return names + [resolve(part.file, location) for location in sorted(locations)]


def _add(bundle: Bundle, name: str, files: dict[str, int]) -> bytes:
    data = bundle.read(name, MAX_MODEL_BYTES)
    descriptor = os.memfd_create("edge-agent-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    files[name] = descriptor
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return data
