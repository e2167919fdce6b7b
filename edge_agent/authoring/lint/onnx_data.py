"""Checks of the external data of an ONNX file: inside, there, regular, long enough."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.lint.findings import Finding
from edge_signing.errors import BundleInvalid
from edge_signing.external_data import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Bits of an element, by the number of its type; text, and types that come later, have none.
# Source: onnx.proto, TensorProto.DataType and raw_data.
_BITS: Final = {
    number: bits
    for bits, numbers in {
        2: (25, 26),
        4: (21, 22, 23),
        6: (27, 28),
        8: (2, 3, 9, 17, 18, 19, 20, 24),
        16: (4, 5, 10, 16),
        32: (1, 6, 12),
        64: (7, 11, 13, 14),
        128: (15,),
    }.items()
    for number in numbers
}


def has_external(proto: Any) -> bool:
    """Tells whether any tensor's bytes lie in another file."""
    return any(_is_external(tensor) for _, tensor in onnx_graphs.tensors(proto))


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
    for name, tensor in onnx_graphs.tensors(proto):
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
    needed = bytes_of(tensor)
    length = needed if length < 0 else length
    if offset < 0 or length < needed:
        return f"needs {needed} bytes, its external data gives {length} at {offset}"
    if offset + length > size:
        return f"ends at byte {offset + length} of its external data, which has {size}"
    return None


def bytes_of(tensor: Any) -> int:
    """Returns how many bytes a tensor's elements take; small ones share bytes."""
    elements = math.prod(int(axis) for axis in tensor.dims)
    return -(-elements * _BITS.get(tensor.data_type, 0) // 8)
