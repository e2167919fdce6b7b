"""The orientation in an EXIF block, and nothing else of it.

Source: EXIF 2.32 (JEITA CP-3451E), 4.6.4.A "Orientation"; TIFF 6.0, section 2.
"""

from __future__ import annotations

import struct
from typing import Final

_ORIENTATION: Final = 0x0112
# TIFF's types SHORT and LONG by their struct codes.
_INTEGERS: Final = {3: "H", 4: "I"}


def orientation(block: bytes) -> int:
    """Reads the orientation of an EXIF block.

    Args:
        block: The block, with or without the leading ``Exif`` and two zero bytes.

    Returns:
        1..8; 1 (upright) where it is absent, out of range or can't be parsed, as viewers do.
    """
    tiff = block.removeprefix(b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 1
    (start,) = struct.unpack_from(order + "I", tiff, 4)
    if start + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, start)
    last = min(start + 2 + 12 * count, len(tiff)) - 12
    for position in range(start + 2, last + 1, 12):
        tag, kind, values = struct.unpack_from(order + "HHI", tiff, position)
        if tag == _ORIENTATION:
            code = _INTEGERS.get(kind)
            if code is None or values != 1:
                return 1
            (value,) = struct.unpack_from(order + code, tiff, position + 8)
            return int(value) if 1 <= value <= 8 else 1
    return 1
