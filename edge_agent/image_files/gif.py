"""GIF: the first frame and where it stands.

Source: GIF89a specification, sections 18 to 23.
"""

from __future__ import annotations

import struct
from typing import Final

from edge_agent.image_files.contents import Canvas, Contents, check_size, cut_short, damaged

_EXTENSION, _IMAGE, _CONTROL = 0x21, 0x2C, 0xF9
_HAS_TABLE: Final = 0x80
# 64 MiB of full sub-blocks are a quarter of this.
_MAX_BLOCKS: Final = 1_000_000
_MAX_EXTENSIONS: Final = 10_000


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks a GIF file up to the end of its first frame.

    The frame is handed on as a picture of its own: what it leaves of the canvas shows the
    background, as in browsers, where Pillow would paint colour 0. The format has no checksum,
    so bit errors that still make valid codes are not found.

    Raises:
        ImageError: It is cut short, damaged, or canvas or frame are larger than ``max_pixels``.
    """
    if len(data) < 13:
        raise cut_short("no GIF screen descriptor")
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    check_size(width, height, max_pixels)
    tables = 13 + _table_bytes(flags)
    control, start = _first_image(data, tables)
    left, top, frame_width, frame_height, frame_flags = struct.unpack_from("<HHHHB", data, start)
    check_size(frame_width, frame_height, max_pixels)
    end = _skip_blocks(data, start + 9 + _table_bytes(frame_flags) + 1)
    if end < len(data) and not data[end:].strip(b"\0"):
        # A zero ends a frame's data, so the frame itself may have lost its end too.
        raise cut_short("nothing but zeros after the GIF's first frame")
    head = data[:6] + struct.pack("<HH", frame_width, frame_height) + data[10:tables]
    frame = b",\0\0\0\0" + data[start + 4 : end]
    whole = (left, top, frame_width, frame_height) == (0, 0, width, height)
    return Contents(
        head + control + frame + b";", canvas=None if whole else Canvas(width, height, left, top)
    )


def _table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & _HAS_TABLE else 0


def _first_image(data: bytes, position: int) -> tuple[bytes, int]:
    """Returns the control extension (transparency only) and where the image descriptor begins."""
    control = b""
    for _ in range(_MAX_EXTENSIONS):
        if position + 10 > len(data):
            raise cut_short("no GIF frame")
        if data[position] == _IMAGE:
            return control, position + 1
        if data[position] != _EXTENSION:
            raise damaged(f"no GIF block at byte {position}")
        if data[position + 1] == _CONTROL and data[position + 2] == 4:
            transparent = data[position + 3] & 1
            control = bytes([_EXTENSION, _CONTROL, 4, transparent, 0, 0, data[position + 6], 0])
        position = _skip_blocks(data, position + 2)
    raise damaged(f"more than {_MAX_EXTENSIONS} GIF extensions")


def _skip_blocks(data: bytes, position: int) -> int:
    """Returns where the sub-blocks that begin there end."""
    for _ in range(_MAX_BLOCKS):
        if position >= len(data):
            raise cut_short("the GIF's first frame is not whole")
        length = data[position]
        position += 1 + length
        if length == 0:
            return position
    raise damaged(f"more than {_MAX_BLOCKS} GIF sub-blocks")
