"""WebP: RIFF chunks, canvas size, first frame.

Source: RFC 9649 (WebP Image Format), sections 2.5 to 2.7.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from edge_agent.image_files import exif
from edge_agent.image_files.contents import Contents, check_size, cut_short, damaged, zero_tail

_KEPT: Final = frozenset({b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"})
_PIXELS: Final = frozenset({b"VP8 ", b"VP8L", b"ANMF"})
_ALPHA_AND_ANIMATION: Final = 0x12
# Flat pictures rightly end in zeros, up to a quarter of the file (measured with libwebp 1.6).
_MIN_ZEROS: Final = 64
_MAX_CHUNKS: Final = 100_000


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks a WebP file.

    The format has no checksum: bit errors, and a zero-filled tail of less than half of the
    picture's bytes, are not found.

    Raises:
        ImageError: It is cut short, damaged, or its canvas is larger than ``max_pixels``.
    """
    kept, kinds, orientation = list[bytes](), set[bytes](), 1
    for kind, start, end in _chunks(data):
        if not kinds:
            check_size(*_size(kind, data[start:end]), max_pixels)
        if kind == b"EXIF" and orientation == 1:
            orientation = exif.orientation(data[start:end])
        # One frame is enough, and the decoder reads no further.
        if kind in _KEPT and not (kind in _PIXELS and _PIXELS & kinds):
            kept.append(_chunk(kind, _body(kind, data, start, end)))
        kinds.add(kind)
    if not _PIXELS & kinds:
        raise damaged("a WebP without a picture")
    body = b"WEBP" + b"".join(kept)
    return Contents(b"RIFF" + struct.pack("<I", len(body)) + body, orientation)


def decode_once(image: Any) -> None:
    """Lets Pillow drop libwebp's decoder, with its two canvases, once the first frame is out.

    Args:
        image: Pillow's opened WebP file. One whose inner names are others than those of Pillow
            9.4 to 13 is left alone: it only takes more memory.
    """
    following = getattr(image, "_get_next", None)
    if following is None or not hasattr(image, "_decoder"):
        return

    def first() -> Any:
        frame = following()
        image._decoder = image._get_next = None
        return frame

    image._get_next = first


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields type, start and end of each chunk's body."""
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 > len(data):
        raise cut_short(f"{size + 8} bytes were announced, {len(data)} are here")
    position = 12
    for _ in range(_MAX_CHUNKS):
        if position + 8 > size + 8:
            return
        kind, length = struct.unpack_from("<4sI", data, position)
        start, end = position + 8, position + 8 + length
        if end > size + 8:
            raise cut_short(f"the WebP chunk at byte {position} needs {length} bytes")
        if not kind.isascii() or b"\0" in kind:
            raise damaged(f"no WebP chunk at byte {position}")
        yield kind, start, end
        position = end + length % 2
    raise damaged(f"more than {_MAX_CHUNKS} WebP chunks")


def _size(kind: bytes, body: bytes) -> tuple[int, int]:
    """Returns (width, height) that the first chunk claims."""
    if kind == b"VP8X" and len(body) >= 10:
        return int.from_bytes(body[4:7], "little") + 1, int.from_bytes(body[7:10], "little") + 1
    if kind == b"VP8 " and body[3:6] == b"\x9d\x01\x2a" and len(body) >= 10:
        width, height = struct.unpack_from("<HH", body, 6)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and body[:1] == b"\x2f" and len(body) >= 5:
        (bits,) = struct.unpack_from("<I", body, 1)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    raise damaged("a WebP without a frame header")


def _body(kind: bytes, data: bytes, start: int, end: int) -> bytes:
    body = data[start:end]
    if kind == b"VP8X":
        return bytes([body[0] & _ALPHA_AND_ANIMATION]) + body[1:]
    zeros = zero_tail(data, start, end)
    if kind in _PIXELS and zeros >= _MIN_ZEROS and zeros * 2 > len(body):
        raise cut_short(f"the last {zeros} bytes of the picture are zero")
    return body


def _chunk(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
