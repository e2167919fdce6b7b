"""AVIF: boxes are whole, and EXIF items are hidden from the decoder.

Rotation and mirroring are the boxes ``irot`` and ``imir``; an EXIF orientation is to be ignored.
Source: ISO/IEC 14496-12 (boxes), ISO/IEC 23000-22 (MIAF), 7.3.6.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from edge_agent.image_files.contents import Contents, cut_short, damaged, zero_tail

# AV1 data end in a set bit with less than a byte of zeros after it; an encoder adds none.
_MIN_ZEROS: Final = 16
_MAX_BOXES: Final = 10_000


def read(data: bytes, max_pixels: int) -> Contents:  # noqa: ARG001  size is in nested boxes
    """Checks the boxes of an AVIF file; the decoder's own header check gives the size.

    Bit errors inside AV1 data that still decode are not found.

    Raises:
        ImageError: It is cut short or damaged.
    """
    hidden, seen = bytearray(data), False
    for kind, start, end in _boxes(data, 0, len(data)):
        if kind == b"mdat" and zero_tail(data, start, end) >= _MIN_ZEROS:
            raise cut_short("the last bytes of the picture are zero")
        if kind == b"meta":
            if seen:
                raise damaged("a second AVIF meta box")
            seen = True
            _hide_exif(data, start, end, hidden)
    return Contents(bytes(hidden))


class _Once:
    """Stands for Pillow's decoder until its first frame is out."""

    def __init__(self, image: Any) -> None:
        self._image = image
        self._decoder = image._decoder

    def get_frame(self, number: int) -> Any:
        decoder, self._decoder = self._decoder, None
        self._image._decoder = None
        return decoder.get_frame(number)


def decode_once(image: Any) -> None:
    """Lets Pillow drop the decoder, with its planes, once the first frame is out.

    Args:
        image: Pillow's opened AVIF file. One whose inner names are others than those of Pillow
            11.3 to 13 is left alone: it only takes more memory.
    """
    if hasattr(getattr(image, "_decoder", None), "get_frame"):
        image._decoder = _Once(image)


def _boxes(data: bytes, position: int, limit: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields type, start and end of the body of each box in a range."""
    for _ in range(_MAX_BOXES):
        if position == limit:
            return
        head, size = 8, int.from_bytes(data[position : position + 4], "big")
        if size == 1:
            head, size = 16, int.from_bytes(data[position + 8 : position + 16], "big")
        elif size == 0:
            size = limit - position
        kind = data[position + 4 : position + 8]
        if position + size > limit or len(kind) < 4:
            raise cut_short(f"the AVIF box at byte {position} is not whole")
        if size < head or kind == b"\0\0\0\0":
            raise damaged(f"no AVIF box at byte {position}")
        yield kind, position + head, position + size
        position += size
    raise damaged(f"more than {_MAX_BOXES} AVIF boxes")


def _hide_exif(data: bytes, start: int, end: int, hidden: bytearray) -> None:
    for kind, begin, stop in _boxes(data, start + 4, end):
        if kind == b"iinf":
            count = 2 if data[begin : begin + 1] == b"\0" else 4
            for _, item, item_end in _boxes(data, begin + 4 + count, stop):
                _hide(data, item, item_end, hidden)
            return


def _hide(data: bytes, start: int, end: int, hidden: bytearray) -> None:
    """Renames an item's type; after version and flags come its number and a protection index."""
    version = data[start] if start < end else 0
    place = start + 4 + (4 if version == 3 else 2) + 2
    if version >= 2 and place + 4 <= end and data[place : place + 4] == b"Exif":
        hidden[place : place + 4] = b"skip"
