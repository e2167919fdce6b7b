"""TIFF: the first directory, rewritten with only the tags that decide pixels.

Source: TIFF 6.0 (Adobe, 1992), sections 2 to 15 and 21.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from edge_agent.errors import ImageError
from edge_agent.image_files.contents import Contents, check_size, cut_short, damaged

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIPS, _ORIENTATION, _SAMPLES, _ROWS, _STRIP_BYTES, _PLANAR = 273, 274, 277, 278, 279, 284
_TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES = 322, 323, 324, 325
_EXTRA_SAMPLES, _SAMPLE_FORMAT, _JPEG_TABLES, _SUBSAMPLING = 338, 339, 347, 530
_SCALARS: Final = frozenset(
    {_WIDTH, _HEIGHT, _COMPRESSION, _PHOTOMETRIC, 266, _ORIENTATION, _SAMPLES, _ROWS, _PLANAR}
    | {292, 293, 317, _TILE_WIDTH, _TILE_HEIGHT, 531}
)
_PLACES: Final = frozenset({_STRIPS, _STRIP_BYTES, _TILES, _TILE_BYTES})
# 320: colour map; 529: YCbCr coefficients; 532: reference black and white.
_ARRAYS: Final = frozenset({_BITS, 320, _EXTRA_SAMPLES, _SAMPLE_FORMAT, _SUBSAMPLING, 529, 532})
_TYPE_BYTES: Final = {1: 1, 3: 2, 4: 4, 5: 8, 7: 1}
_CODES: Final = {1: "B", 3: "H", 4: "I"}
_RAW, _JPEG = 1, 7
_JPEG_END: Final = b"\xff\xd9"
_JPEG_SCAN: Final = b"\xff\xda"
# TIFF writers make one scan, or one a component; each takes as long as the whole picture.
_MAX_SCANS: Final = 20
_COMPRESSIONS: Final = frozenset({_RAW, 2, 3, 4, 5, _JPEG, 8, 32773, 32946})
_MAX_PIECES: Final = 1 << 20
_MAX_SAMPLES: Final = 6
_MIN_ZEROS: Final = 16
_YCBCR, _WHITE_IS_ZERO, _SEPARATE = 6, 0, 2


class _Entry(NamedTuple):
    kind: int
    values: tuple[int, ...]
    raw: bytes


def read(data: bytes, max_pixels: int) -> Contents:
    """Checks a TIFF file's first picture.

    Uncompressed, LZW, Deflate, PackBits, CCITT and JPEG data are taken. Bit errors in
    uncompressed, PackBits, CCITT and JPEG data, and zero-filled uncompressed data, are not found.

    Raises:
        ImageError: It is cut short, damaged, larger than ``max_pixels``, or holds samples whose
            range isn't known.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None or len(data) < 8:
        raise ImageError("not a classic TIFF (BigTIFF isn't taken)", hint="save it as PNG")
    tags = _directory(data, order)
    width, height = _one(tags, _WIDTH, 0), _one(tags, _HEIGHT, 0)
    check_size(width, height, max_pixels)
    _check_samples(tags)
    _check_pieces(data, tags, width, height, max_pixels)
    orientation = _one(tags, _ORIENTATION, 1)
    tags.pop(_ORIENTATION, None)
    if _one(tags, _ROWS, 0) > height:
        # Some decoders allocate for the rows that are claimed.
        tags[_ROWS] = _Entry(4, (height,), struct.pack(order + "I", height))
    bits = tags[_BITS].values[0] if _BITS in tags else 1
    return Contents(
        _rewritten(data, order, tags),
        orientation if 1 <= orientation <= 8 else 1,
        white={16: 65535, 12: 4095}.get(bits),
        inverted=_one(tags, _PHOTOMETRIC, 0) == _WHITE_IS_ZERO,
    )


def _directory(data: bytes, order: str) -> dict[int, _Entry]:
    (start,) = struct.unpack_from(order + "I", data, 4)
    if start + 2 > len(data):
        raise cut_short("the TIFF directory is missing")
    (count,) = struct.unpack_from(order + "H", data, start)
    if start + 2 + 12 * count > len(data):
        raise cut_short("the TIFF directory is not whole")
    tags: dict[int, _Entry] = {}
    for position in range(start + 2, start + 2 + 12 * count, 12):
        (tag,) = struct.unpack_from(order + "H", data, position)
        if tag in _SCALARS or tag in _ARRAYS or tag in _PLACES or tag == _JPEG_TABLES:
            if tag in tags:
                raise damaged(f"TIFF tag {tag} stands twice")
            tags[tag] = _entry(data, order, position, tag)
    return tags


def _entry(data: bytes, order: str, position: int, tag: int) -> _Entry:
    kind, count = struct.unpack_from(order + "HI", data, position + 2)
    if kind not in _TYPE_BYTES or count == 0 or (tag in _SCALARS and count != 1):
        raise damaged(f"TIFF tag {tag} has type {kind} and {count} values")
    if (tag in _ARRAYS and count > 3 << 16) or (tag in _PLACES and count > _MAX_PIECES):
        raise damaged(f"TIFF tag {tag} has {count} values")
    size, place = _TYPE_BYTES[kind] * count, position + 8
    if size > 4:
        (place,) = struct.unpack_from(order + "I", data, place)
    if place + size > len(data):
        raise cut_short(f"TIFF tag {tag} points outside of the file")
    raw = data[place : place + size]
    if kind in _CODES:
        return _Entry(kind, struct.unpack(f"{order}{count}{_CODES[kind]}", raw), raw)
    if tag not in (_JPEG_TABLES, 529, 532):
        raise damaged(f"TIFF tag {tag} has type {kind}")
    return _Entry(kind, (), raw)


def _one(tags: dict[int, _Entry], tag: int, default: int) -> int:
    return tags[tag].values[0] if tag in tags else default


def _check_samples(tags: dict[int, _Entry]) -> None:
    compression = _one(tags, _COMPRESSION, _RAW)
    if compression not in _COMPRESSIONS:
        raise ImageError(
            f"TIFF compression {compression} isn't taken",
            hint="save it as PNG, or as TIFF with LZW, Deflate or JPEG compression",
        )
    if not 1 <= _one(tags, _SAMPLES, 1) <= _MAX_SAMPLES:
        raise damaged(f"{_one(tags, _SAMPLES, 1)} samples a pixel")
    formats = tags[_SAMPLE_FORMAT].values if _SAMPLE_FORMAT in tags else (1,)
    if set(formats) == {2}:
        raise ImageError(
            "signed samples (TIFF SampleFormat 2) have no known black and white",
            hint="convert it to unsigned 8-bit or 16-bit samples",
        )
    subsampling = tags[_SUBSAMPLING].values if _SUBSAMPLING in tags else (2, 2)
    if (
        compression == _RAW
        and _one(tags, _PHOTOMETRIC, 0) == _YCBCR
        and any(step != 1 for step in subsampling)
    ):
        raise ImageError("uncompressed TIFF with subsampled YCbCr isn't taken", hint="save as RGB")


def _check_pieces(
    data: bytes, tags: dict[int, _Entry], width: int, height: int, max_pixels: int
) -> None:
    """Checks that the strips or tiles cover the picture and lie inside the file."""
    tiled = _TILES in tags
    places, sizes = (_TILES, _TILE_BYTES) if tiled else (_STRIPS, _STRIP_BYTES)
    if places not in tags or sizes not in tags:
        raise damaged("the TIFF has no strips and no tiles, or not their sizes")
    if tiled:
        across, down = _one(tags, _TILE_WIDTH, 0), _one(tags, _TILE_HEIGHT, 0)
        check_size(across, down, max_pixels)
    else:
        across, down = width, min(_one(tags, _ROWS, height), height)
        if down < 1:
            raise damaged("strips of no rows")
    wanted = -(-width // across) * -(-height // down)
    if _one(tags, _PLANAR, 1) == _SEPARATE:
        wanted *= _one(tags, _SAMPLES, 1)
    offsets, lengths = tags[places].values, tags[sizes].values
    if not len(offsets) == len(lengths) == wanted:
        raise damaged(f"{len(offsets)} strips or tiles where {wanted} are needed")
    _check_ends(data, _one(tags, _COMPRESSION, _RAW), offsets, lengths)
    if _JPEG_TABLES in tags and not tags[_JPEG_TABLES].raw.endswith(_JPEG_END):
        raise damaged("the JPEG tables have no end marker (EOI)")


def _check_ends(
    data: bytes, compression: int, offsets: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    """Checks that strips or tiles lie inside the file, and that compressed ones look whole."""
    for offset, length in zip(offsets, lengths, strict=True):
        end = offset + length
        if end > len(data):
            raise cut_short(f"the TIFF data at byte {offset} need {length} bytes")
        last = data[max(offset, end - _MIN_ZEROS) : end]
        if compression == _JPEG and not last.rstrip(b"\0").endswith(_JPEG_END):
            raise cut_short(f"the JPEG data at byte {offset} have no end marker (EOI)")
        if compression == _JPEG and data.count(_JPEG_SCAN, offset, end) > _MAX_SCANS:
            raise damaged(f"the JPEG data at byte {offset} have more than {_MAX_SCANS} scans")
        if compression != _RAW and not last.strip(b"\0"):
            raise cut_short(f"the TIFF data at byte {offset} end in zeros")


def _rewritten(data: bytes, order: str, tags: dict[int, _Entry]) -> bytes:
    """Returns the file with a new directory at its end; strips and tiles stay in place."""
    start = len(data) + len(data) % 2
    spill = start + 2 + 12 * len(tags) + 4
    head, tail = [struct.pack(order + "H", len(tags))], b""
    for tag, (kind, _, raw) in sorted(tags.items()):
        field = raw.ljust(4, b"\0")
        if len(raw) > 4:
            field = struct.pack(order + "I", spill + len(tail))
            tail += raw + b"\0" * (len(raw) % 2)
        head.append(struct.pack(order + "HHI", tag, kind, len(raw) // _TYPE_BYTES[kind]) + field)
    head.append(b"\0\0\0\0")
    begin = data[:4] + struct.pack(order + "I", start) + data[8:]
    return begin.ljust(start, b"\0") + b"".join(head) + tail
