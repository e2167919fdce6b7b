"""The ``.npy`` format, read strictly: a header that lies never allocates, nothing is unpickled.

Source: NumPy, ``numpy.lib.format``, "NPY format" versions 1.0, 2.0 and 3.0.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from edge_agent.errors import TensorError

if TYPE_CHECKING:
    from edge_agent.types import Tensor

_MAGIC: Final = b"\x93NUMPY"
_LENGTH_BYTES: Final = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}
# As NumPy's own default, `max_header_size`.
_MAX_HEADER_BYTES: Final = 10_000
_MAX_AXES: Final = 32
_NUMBERS: Final = re.compile(r"[<>=|]?(f[248]|[iu][1248]|b1|\?)")


def parse(data: bytes, name: str) -> Tensor:
    """Reads the array of a ``.npy`` file.

    Args:
        data: The whole file.
        name: What to call it in messages.

    Returns:
        A read-only view of ``data``; byte order and axis order as in the file.

    Raises:
        TensorError: It isn't one, holds anything but plain numbers, or is shorter or longer than
            its header says.
    """
    header, start = _header(data, name)
    descr, shape = header["descr"], header["shape"]
    if not isinstance(descr, str) or not _NUMBERS.fullmatch(descr):
        raise _unreadable(f"it holds {descr!r:.40}, not plain numbers", name)
    if not _is_shape(shape) or not isinstance(header["fortran_order"], bool):
        raise _unreadable("its header is malformed", name)
    dtype = np.dtype(descr)
    count = math.prod(shape)
    if count == 0:
        raise TensorError(f"has the shape {list(shape)}: it is empty", path=name)
    promised, there = count * dtype.itemsize, len(data) - start
    if promised != there:
        raise _unreadable(f"its header promises {promised} bytes, {there} follow", name)
    flat = np.frombuffer(data, dtype, count, start)
    return flat.reshape(shape, order="F" if header["fortran_order"] else "C")


def _header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    """Returns the header's dictionary and where the values begin."""
    if data.startswith(b"PK"):
        raise TensorError("is an archive; rename it to .npz", path=name)
    width = _LENGTH_BYTES.get(data[6:8]) if data.startswith(_MAGIC) else None
    if width is None:
        raise _unreadable("it doesn't begin as one", name)
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if start - 8 - width > _MAX_HEADER_BYTES or start > len(data):
        raise _unreadable("its header is cut off or too long", name)
    from ast import literal_eval

    try:
        header = literal_eval(data[8 + width : start].decode("utf-8").strip(" \t\n"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise _unreadable("its header is malformed", name) from error
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise _unreadable("its header is malformed", name)
    return header, start


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= _MAX_AXES
        and all(type(axis) is int and 0 <= axis < 2**62 for axis in value)
    )


def _unreadable(reason: str, name: str) -> TensorError:
    return TensorError(f"is not a readable .npy file: {reason}", path=name)
