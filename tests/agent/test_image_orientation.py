"""All eight EXIF orientations, and EXIF blocks that make no sense."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

from edge_agent.images import ImageLimits, decode


def encode(image: Image.Image, form: str, **options: Any) -> bytes:
    if form == "AVIF" and not ("avif" in features.modules and features.check("avif")):
        pytest.skip("no AVIF in this build of Pillow")
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def show(data: bytes) -> Image.Image:
    image = decode(data, "a file", ImageLimits(), (255, 255, 255))
    assert image.mode == "RGB"
    return image


def pixels(data: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(show(data)).astype(int)


def scene(size: tuple[int, int] = (13, 7)) -> Image.Image:
    """A picture that no rotation or mirroring maps to itself."""
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    return Image.fromarray(
        np.stack([x * 200 // size[0], y * 220 // size[1], (x + y) * 5 // 2], 2).astype(np.uint8)
    )


def exif_of(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    value = struct.pack(order + ("HH" if kind == 3 else "I"), *([orientation, 0][: 5 - kind]))
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    return b"Exif\0\0" + head + struct.pack(order + "HHHI", 1, 0x0112, kind, 1) + value + bytes(4)


STORED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, -1),
}
"""How a camera with each orientation stores an upright scene (EXIF: row 0 / column 0 are ...)."""


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_every_orientation_comes_upright(form: str, orientation: int) -> None:
    upright = np.asarray(scene((64, 32)))
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    options: dict[str, Any] = {"exif": exif_of(orientation)}
    if form == "WEBP":
        options["lossless"] = True
    if form == "TIFF":
        options = {"tiffinfo": {274: orientation}}
    if form in ("JPEG", "AVIF"):
        options |= {"quality": 100, "subsampling": "4:4:4"}
    shown = pixels(encode(stored, form, **options))
    assert shown.shape == upright.shape
    assert np.abs(shown - upright).max() <= (6 if form in ("JPEG", "AVIF") else 0)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", [3, 4])
def test_exif_orders_and_integer_types(order: str, kind: int) -> None:
    assert show(encode(scene(), "JPEG", exif=exif_of(6, order, kind))).size == (7, 13)


@pytest.mark.parametrize(
    "block",
    [
        exif_of(0),
        exif_of(9),
        exif_of(65535),
        exif_of(6, kind=4)[:-8],
        exif_of(6)[:12],
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        b"Exif\0\0" + bytes(64),
        exif_of(6).replace(struct.pack("<HHI", 0x112, 3, 1), struct.pack("<HHI", 0x112, 5, 1)),
        exif_of(6).replace(struct.pack("<HHI", 0x112, 3, 1), struct.pack("<HHI", 0x112, 3, 0)),
    ],
)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_exif_that_makes_no_sense_counts_as_upright(form: str, block: bytes) -> None:
    data = encode(scene(), "JPEG", exif=block) if form == "JPEG" else b""
    if form == "PNG":
        data = encode(scene(), form, exif=block)
    if form == "WEBP":
        data = encode(scene(), form, exif=block)
    if form == "AVIF":
        clean = exif_of(1)
        data = encode(scene(), form, exif=clean)
        tail = block[6:].ljust(len(clean) - 6, b"\0")[: len(clean) - 6]
        data = data.replace(clean[6:], tail)
    assert show(data).size == (13, 7)
