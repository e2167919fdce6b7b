"""Reading the files that a bundle is made of, wherever their author keeps them."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final

from edge_agent.backends.base import ModelFile
from edge_agent.bundles import MAX_MODEL_BYTES
from edge_agent.errors import BadInputError, ModelFileError
from edge_agent.files import read_regular
from edge_agent.labels import MAX_LABELS_BYTES, parse_labels

if TYPE_CHECKING:
    from pathlib import Path

ENGINES: Final = {".onnx": "onnx", ".tflite": "tflite"}


def read(path: Path, max_bytes: int, *, follow_links: bool = True) -> bytes:
    """Reads a file that must hold something.

    Raises:
        BadInputError: It can't be read, is empty or too large.
    """
    try:
        data = read_regular(path, max_bytes, follow_links=follow_links)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    if not data or len(data) > max_bytes:
        raise BadInputError(
            "is empty" if not data else f"is larger than {max_bytes} bytes", path=str(path)
        )
    return data


def require_no_links(folder: Path, name: str) -> None:
    """Refuses a file that lies elsewhere: no part of its path below the folder may be a link.

    Raises:
        BadInputError: One is.
    """
    path = folder
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise BadInputError(
                "is a symbolic link", path=str(path), hint="put the file itself there"
            )


def read_model(path: Path) -> ModelFile:
    """Reads a model file, and the external data of an ONNX file.

    Raises:
        BadInputError: A file can't be read, is empty or too large, or is behind a link.
        ModelFileError: The ONNX file is damaged, or its data lies outside its folder.
    """
    data = read(path, MAX_MODEL_BYTES)
    if path.suffix.lower() == ".tflite":
        return ModelFile(data)
    from edge_signing.errors import BundleInvalid
    from edge_signing.external_data import external_files, resolve

    external = {}
    try:
        for at in sorted(external_files(BytesIO(data), len(data))):
            # A link beside a stranger's model could lead to any file, which would be published.
            name = resolve(path.name, at)
            require_no_links(path.parent, name)
            external[at] = read(path.parent / name, MAX_MODEL_BYTES, follow_links=False)
    except BundleInvalid as error:
        raise ModelFileError(error.message, path=str(path), hint=error.hint) from error
    return ModelFile(data, external)


def read_labels(path: Path) -> tuple[str, ...]:
    """Reads class names: a JSON array, or one a line.

    Raises:
        BadInputError: They can't be read.
    """
    return parse_any_labels(read(path, MAX_LABELS_BYTES), str(path))


def parse_any_labels(data: bytes, path: str) -> tuple[str, ...]:
    """Parses class names; for the formats see `read_labels`."""
    if data.lstrip().startswith(b"["):
        return parse_labels(data, path)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BadInputError("is neither UTF-8 text nor JSON", path=path) from error
    return tuple(line.strip() for line in lines if line.strip())
