"""PNG and APNG: chunks and their checksums.

Source: W3C Portable Network Graphics Specification (Third Edition), sections 5 and 11.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from edge_agent.errors import ImageError
from edge_agent.image_files import exif
from edge_agent.image_files.contents import Contents, check_size, cut_short, damaged

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB, _PALETTE = 0, 2, 3
# Text, profiles and animation are dropped: they can be bombs, and decide no pixel here.
_KEPT: Final = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
# Libraries write 8 KiB or more a chunk; this still takes 64 MiB in chunks of 256 bytes.
_MAX_CHUNKS: Final = 262_144


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks a PNG file: every chunk's CRC up to IEND, and the size that IHDR claims.

    The picture is the one in IDAT, which is an APNG's first frame (or its still stand-in).

    Raises:
        ImageError: It is cut short, damaged, larger than ``max_pixels``, or of a kind that
            Pillow would show wrongly.
    """
    kept, seen, orientation, depth, color = [_SIGNATURE], set[bytes](), 1, 0, 0
    for kind, body, whole in _chunks(data):
        if not seen:
            depth, color = _header(kind, body, max_pixels)
        elif kind in (b"IHDR", b"PLTE", b"tRNS") and kind in seen:
            raise damaged(f"a second {kind.decode()} chunk")
        seen.add(kind)
        if kind == b"eXIf" and orientation == 1:
            orientation = exif.orientation(body)
        if kind == b"tRNS":
            whole = _transparency(body, depth, color)
        if kind in _KEPT:
            kept.append(whole)
    if b"IDAT" not in seen or (color == _PALETTE and b"PLTE" not in seen):
        raise damaged("a PNG without pixels or without its palette")
    return Contents(b"".join(kept), orientation, white=65535 if depth == 16 else None)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yields type, body and whole of each chunk up to and with IEND."""
    position = len(_SIGNATURE)
    for _ in range(_MAX_CHUNKS):
        head = data[position : position + 8]
        length = int.from_bytes(head[:4], "big")
        end = position + 12 + length
        if len(head) < 8 or end > len(data):
            raise cut_short(f"the PNG chunk at byte {position} is not whole")
        kind, body = head[4:], data[position + 8 : end - 4]
        if zlib.crc32(body, zlib.crc32(kind)) != int.from_bytes(data[end - 4 : end], "big"):
            raise damaged(f"the checksum of the PNG chunk at byte {position} is wrong")
        yield kind, body, data[position:end]
        if kind == b"IEND":
            return
        position = end
    raise damaged(f"more than {_MAX_CHUNKS} PNG chunks")


def _header(kind: bytes, body: bytes, max_pixels: int) -> tuple[int, int]:
    """Returns bit depth and colour type."""
    if kind != b"IHDR" or len(body) != 13:
        raise damaged("a PNG that does not begin with its header (IHDR)")
    width, height, depth, color = struct.unpack_from(">IIBB", body)
    check_size(width, height, max_pixels)
    return depth, color


def _transparency(body: bytes, depth: int, color: int) -> bytes:
    """Returns a tRNS chunk as Pillow understands it.

    Pillow scales gray samples of 1, 2 and 4 bits to 0..255, but not the transparent value.
    """
    if color == _RGB and depth == 16:
        raise ImageError(
            "a 16-bit RGB PNG with a transparent colour (tRNS) can't be converted exactly",
            hint="save it with 8 bits a channel, or with an alpha channel",
        )
    if color == _GRAY and len(body) == 2 and depth < 8:
        top = (1 << depth) - 1
        body = ((int.from_bytes(body, "big") & top) * 255 // top).to_bytes(2, "big")
    checksum = zlib.crc32(body, zlib.crc32(b"tRNS"))
    return struct.pack(">I", len(body)) + b"tRNS" + body + struct.pack(">I", checksum)
