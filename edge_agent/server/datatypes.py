"""Element types: NumPy's names here, those of the Open Inference Protocol outside.

Source: Open Inference Protocol, "Tensor Data Types".
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Final

from edge_agent.calls import ITEM_BYTES

if TYPE_CHECKING:
    from edge_agent.calls import OutputTensor

BYTES: Final = "BYTES"
# By NumPy's name: the protocol's, and the code of `struct`.
_TYPES: Final = {
    "float16": ("FP16", "e"),
    "float32": ("FP32", "f"),
    "float64": ("FP64", "d"),
    "uint8": ("UINT8", "B"),
    "int8": ("INT8", "b"),
    "uint16": ("UINT16", "H"),
    "int16": ("INT16", "h"),
    "int32": ("INT32", "i"),
    "int64": ("INT64", "q"),
    "bool": ("BOOL", "?"),
}
DATATYPES: Final = {dtype: names[0] for dtype, names in _TYPES.items()}
DTYPES: Final = {datatype: dtype for dtype, datatype in DATATYPES.items()}

# Where a name of the caller's is one of them, it stands in quotes.
_IN_A_SENTENCE = re.compile(rf"(?<!['\w])(?:{'|'.join(_TYPES)})(?!['\w])")


def in_the_protocols_words(sentence: str) -> str:
    """Returns a sentence with element types as the protocol calls them."""
    return _IN_A_SENTENCE.sub(lambda found: DATATYPES[found[0]], sentence)


def count(one: OutputTensor) -> int:
    """Returns how many values an output has."""
    return len(one.data) // ITEM_BYTES[one.dtype]


def numbers(data: bytes | memoryview, dtype: str) -> list[Any]:
    """Returns the values of a tensor's bytes, flat."""
    return list(struct.unpack(f"<{len(data) // ITEM_BYTES[dtype]}{_TYPES[dtype][1]}", data))
