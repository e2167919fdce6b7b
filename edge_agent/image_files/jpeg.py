"""JPEG (and the first picture of an MPO): segments, frame size, end marker.

Source: ITU-T T.81, annex B.
"""

from __future__ import annotations

import re
from typing import Final

from edge_agent.image_files import exif
from edge_agent.image_files.contents import Contents, check_size, cut_short, damaged

# Inside entropy-coded data, FF 00 is a stuffed byte and FF D0..D7 a restart: neither ends it. It
# must begin with a literal byte: with `\xff+`, fill bytes included, the search is 20 times slower.
_NEXT_MARKER: Final = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_FILL: Final = re.compile(rb"\xff+")
_FRAME: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Baseline, extended and progressive. Lossless frames have no frequencies to leave out: libjpeg
# makes the whole picture of them whatever it is told, in a place for a part of it.
_SCALABLE: Final = frozenset({0xC0, 0xC1, 0xC2})
_STANDALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
_START, _END, _SCAN, _APP0, _APP1, _APP14, _COMMENT = 0xD8, 0xD9, 0xDA, 0xE0, 0xE1, 0xEE, 0xFE
# Every scan makes libjpeg walk the whole picture, which takes 0.1 s for 64 million pixels.
# Encoders write ten or so, at most a few dozen; the largest picture may have as many as these.
_MAX_SCANS: Final = 100
_MAX_FULL_SCANS: Final = 20
# 64 MiB of the largest segments are about a thousand.
_MAX_SEGMENTS: Final = 10_000


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks a JPEG file up to the end marker of its first picture.

    Bit errors inside entropy-coded data are not found: the format has no checksum, and libjpeg
    only warns about them where Pillow can't hear it.

    Raises:
        ImageError: It is cut short, damaged, larger than ``max_pixels``, or has so many scans
            that decoding it takes seconds.
    """
    kept, position, orientation, scans, pixels = [data[:2]], 2, 1, 0, 0
    frames: set[int] = set()
    for _ in range(_MAX_SEGMENTS):
        marker, start, end = _segment(data, position)
        if marker == _END:
            break
        if marker == _APP1 and orientation == 1 and data[start + 2 : start + 8] == b"Exif\0\0":
            orientation = exif.orientation(data[start + 2 : end])
        if marker in _FRAME:
            pixels = max(pixels, _frame_pixels(data[start:end], max_pixels))
            frames.add(marker)
        if marker == _SCAN:
            scans += 1
            end = _end_of_scan(data, end)
        if _decides_pixels(marker, data[start + 2 : start + 7]):
            kept.append(data[position:end])
        position = end
    else:
        raise damaged(f"more than {_MAX_SEGMENTS} JPEG segments")
    if not scans or not pixels:
        raise damaged("a JPEG without a picture")
    limit = min(_MAX_SCANS, _MAX_FULL_SCANS * max_pixels // pixels)
    if scans > limit:
        raise damaged(f"{scans} scans, more than the limit of {limit} for {pixels} pixels")
    whole = b"".join([*kept, b"\xff\xd9"])
    return Contents(whole, orientation, is_scalable=frames <= _SCALABLE)


def _segment(data: bytes, position: int) -> tuple[int, int, int]:
    """Returns marker, start (at its length field) and end of the segment at that place."""
    if position >= len(data):
        raise cut_short("no end marker (EOI) after the last scan")
    fill = _FILL.match(data, position)
    if fill is None:
        raise damaged(f"no JPEG marker at byte {position}")
    start = fill.end()
    if start >= len(data):
        raise cut_short("no end marker (EOI) after the last scan")
    marker = data[start]
    start += 1
    if marker == _END or marker in _STANDALONE:
        return marker, start, start
    if marker in (0x00, _START):
        raise damaged(f"no JPEG segment at byte {position}")
    length = int.from_bytes(data[start : start + 2], "big")
    if start + max(length, 2) > len(data):
        raise cut_short(f"the segment at byte {position} needs {length} bytes")
    if length < 2:
        raise damaged(f"the segment at byte {position} has length {length}")
    return marker, start, start + length


def _frame_pixels(segment: bytes, max_pixels: int) -> int:
    if len(segment) < 8:
        raise damaged("the frame header is too small")
    height, width = int.from_bytes(segment[3:5], "big"), int.from_bytes(segment[5:7], "big")
    check_size(width, height, max_pixels)
    return width * height


def _end_of_scan(data: bytes, start: int) -> int:
    found = _NEXT_MARKER.search(data, start)
    if found is None:
        raise cut_short("no end marker (EOI) after the last scan")
    return found.start()


def _decides_pixels(marker: int, name: bytes) -> bool:
    """Tells tables and frames, and the two headers that settle the colour space, from the rest."""
    if marker == _APP0:
        return name == b"JFIF\0"
    if marker == _APP14:
        return name == b"Adobe"
    return not (_APP0 < marker < _APP0 + 16 or marker == _COMMENT)
