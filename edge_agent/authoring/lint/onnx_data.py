"""Checks of the external data of an ONNX file: inside, there, regular, long enough."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from edge_agent.authoring import onnx_files, onnx_graphs
from edge_agent.authoring.lint.findings import Finding
from edge_signing.errors import BundleInvalid
from edge_signing.external_data import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def has_external(proto: Any) -> bool:
    """Tells whether any tensor's bytes lie in another file."""
    return any(_is_external(tensor) for _, tensor in onnx_files.tensors(proto))


def check(folder: Path, file: str, proto: Any, locations: set[str]) -> Iterator[Finding]:
    """Checks the files that tensors refer to, without opening one that lies outside.

    Args:
        folder: The project.
        file: The ONNX file in it.
        proto: That file, parsed.
        locations: What any parser could take for a file that it refers to.
    """
    sizes: dict[str, int] = {}
    for location in sorted(locations):
        problem, sizes[location] = _look(folder, file, location)
        if problem:
            hint = "put that file beside the model, or save the model with its data inside"
            yield Finding("external-data", file, problem, hint=hint)
    for name, tensor in onnx_files.tensors(proto):
        if _is_external(tensor):
            entries = {one.key: one.value for one in tensor.external_data}
            size = sizes.get(entries.get("location", ""), 0)
            problem = _too_short(tensor, entries, size) if size else None
            if problem:
                yield Finding("external-data", file, f"the tensor {name!r} {problem}")


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == onnx_graphs.package().TensorProto.EXTERNAL)


def _look(folder: Path, file: str, location: str) -> tuple[str | None, int]:
    """Returns what is wrong with a file of external data, and its size."""
    try:
        name = resolve(file, location)
    except BundleInvalid as error:
        return error.message, 0
    path = folder
    for component in name.split("/"):
        path /= component
        if path.is_symlink():
            return f"the external data {location!r} is, or lies behind, a symbolic link", 0
    if not path.is_file():
        return f"the external data {location!r} is missing", 0
    size = path.stat().st_size
    return (None, size) if size else (f"the external data {location!r} is empty", 0)


def _too_short(tensor: Any, entries: dict[str, str], size: int) -> str | None:
    """Source: onnx.proto, TensorProto.external_data: offset and length are decimal strings."""
    numbers = [entries.get("offset") or "0", entries.get("length") or "-1"]
    try:
        offset, length = (int(one) for one in numbers)
    except ValueError:
        return f"has an offset or a length that is no number: {numbers[0][:20]!r}"
    needed = _bytes(tensor)
    length = needed if length < 0 else length
    if offset < 0 or length < needed:
        return f"needs {needed} bytes, its external data gives {length} at {offset}"
    if offset + length > size:
        return f"ends at byte {offset + length} of its external data, which has {size}"
    return None


def _bytes(tensor: Any) -> int:
    helper = onnx_graphs.package().helper
    try:
        itemsize = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except KeyError:
        return 0
    small = tensor.data_type >= 21  # 4 bits an element (UINT4 and what came after it)
    elements = math.prod(int(axis) for axis in tensor.dims)
    return elements * int(itemsize) // (2 if small else 1)
