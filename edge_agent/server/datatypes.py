"""Element types: NumPy's names here, those of the Open Inference Protocol outside.

Source: Open Inference Protocol, "Tensor Data Types".
"""

from __future__ import annotations

import struct
from typing import Any, Final

BYTES: Final = "BYTES"
# By NumPy's name: the protocol's, bytes an element, and the code of `struct`.
_TYPES: Final = {
    "float16": ("FP16", 2, "e"),
    "float32": ("FP32", 4, "f"),
    "float64": ("FP64", 8, "d"),
    "uint8": ("UINT8", 1, "B"),
    "int8": ("INT8", 1, "b"),
    "uint16": ("UINT16", 2, "H"),
    "int16": ("INT16", 2, "h"),
    "int32": ("INT32", 4, "i"),
    "int64": ("INT64", 8, "q"),
    "bool": ("BOOL", 1, "?"),
}
DATATYPES: Final = {dtype: names[0] for dtype, names in _TYPES.items()}
DTYPES: Final = {datatype: dtype for dtype, datatype in DATATYPES.items()}
SIZES: Final = {dtype: names[1] for dtype, names in _TYPES.items()}


def numbers(data: bytes | memoryview, dtype: str) -> list[Any]:
    """Returns the values of a tensor's bytes, flat."""
    _, size, code = _TYPES[dtype]
    return list(struct.unpack(f"<{len(data) // size}{code}", data))
