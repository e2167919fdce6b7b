"""PBM, PGM and PPM in their binary variants.

Pillow decodes plain (text) variants, and sample ranges other than 0..255, a pixel at a time in
Python: minutes for a file within the limits. So the former are refused and the latter are
scaled here.

Source: Netpbm's pbm(5), pgm(5) and ppm(5).
"""

from __future__ import annotations

import re
from typing import Final

from edge_agent.errors import ImageError
from edge_agent.image_files.contents import Contents, check_size, cut_short, damaged

_GAP: Final = rb"(?:[ \t\r\n]|#[^\n]{0,1000}\n){1,100}"
_NUMBER: Final = rb"([0-9]{1,10})"
_HEADER: Final = re.compile(rb"P[456]" + _GAP + _NUMBER + _GAP + _NUMBER)
_RANGE: Final = re.compile(_GAP + _NUMBER)
_HINT: Final = "save it as PNG, or as binary PBM, PGM or PPM"


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks the header, and scales samples to 0..255, rounded.

    Raises:
        ImageError: It is cut short, larger than ``max_pixels``, a plain variant, or PFM.
    """
    kind = data[:2]
    if kind in (b"P1", b"P2", b"P3"):
        raise ImageError("plain (text) Netpbm isn't taken", hint=_HINT)
    if kind == b"Pf":
        raise ImageError("PFM (Pillow's mode F) has no known black and white", hint=_HINT)
    found = _HEADER.match(data)
    if found is None:
        raise damaged("no Netpbm header")
    width, height, end = int(found[1]), int(found[2]), found.end()
    check_size(width, height, max_pixels)
    top = 0
    if kind != b"P4":
        found = _RANGE.match(data, end)
        top, end = (int(found[1]), found.end()) if found else (0, end)
        if not 1 <= top <= 65535:
            raise damaged(f"sample values up to {top}")
    if not data[end : end + 1].isspace():
        raise damaged("no white space after the Netpbm header")
    head = b"%s %d %d%s\n" % (kind, width, height, b"" if kind == b"P4" else b" 255")
    samples = width * height * (3 if kind == b"P6" else 1)
    return Contents(head + _scaled(data, end + 1, samples, top))


def _scaled(data: bytes, start: int, samples: int, top: int) -> bytes:
    """Returns samples of 8 bits; one without a range (PBM) or with the usual one is kept."""
    if top in (0, 255):
        return data[start:]
    import numpy as np

    dtype = np.dtype(np.uint8 if top < 256 else ">u2")
    if start + samples * dtype.itemsize > len(data):
        raise cut_short(f"{samples} samples of {dtype.itemsize} bytes are needed")
    steps = np.arange(256 if top < 256 else 65536, dtype=np.uint32).clip(max=top)
    table = ((steps * 255 + top // 2) // top).astype(np.uint8)
    scaled: bytes = table[np.frombuffer(data, dtype, samples, start)].tobytes()
    return scaled
