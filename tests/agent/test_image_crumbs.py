"""Files of endless tiny parts: refused before walking them takes long."""

from __future__ import annotations

import struct
import time
import zlib

import pytest

from edge_agent.errors import ImageError
from edge_agent.images import ImageLimits, decode

MIB = 1024 * 1024


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


ONE_PIXEL = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
GIF = b"GIF89a\1\0\1\0\0\0\0"


@pytest.mark.parametrize(
    ("start", "crumb"),
    [
        (b"\xff\xd8", b"\xff"),
        (b"\xff\xd8", b"\xff\xe1\0\2"),
        (GIF, b"!\xfe\0"),
        (GIF + b"!\xfe", b"\1a"),
        (b"RIFF" + struct.pack("<I", 60 * MIB) + b"WEBPVP8L\5\0\0\0/\0\0\0\0\0", b"JUNK\0\0\0\0"),
        (b"\0\0\0\x0cftypavif", b"\0\0\0\x08free"),
        (b"\x89PNG\r\n\x1a\n" + ONE_PIXEL, chunk(b"tEXt", b"")),
    ],
    ids=["fill", "segments", "extensions", "sub-blocks", "riff", "boxes", "chunks"],
)
def test_crumbs(start: bytes, crumb: bytes) -> None:
    data = start + crumb * ((62 * MIB - len(start)) // len(crumb))
    begin = time.perf_counter()
    with pytest.raises(ImageError):
        decode(data[: 62 * MIB], "crumbs", ImageLimits(), (0, 0, 0))
    assert time.perf_counter() - begin < 5
