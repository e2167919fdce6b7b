"""JPEG at a part of its size: libjpeg's own pixels, geometry of the whole, nothing else changed."""

from __future__ import annotations

import io
import struct
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

from edge_agent import model_yaml
from edge_agent.description import digest_of_pipeline
from edge_agent.errors import DescriptionError, ImageError
from edge_agent.images import ImageLimits, Size, decode, decode_at_least
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request

from . import models
from .test_image_orientation import STORED, encode, exif_of

WHITE = (255, 255, 255)
LIMITS = ImageLimits()
Rule = Literal["shortest-side", "stretch", "letterbox"]


def picture(width: int, height: int) -> Image.Image:
    """Coarse and fine detail, so that leaving out frequencies shows."""
    y, x = np.mgrid[0:height, 0:width]
    fine = (x * 37 + y * 91) % 64
    return Image.fromarray(
        np.stack([x * 190 // width + fine, y * 190 // height + fine, fine * 4], 2).astype(np.uint8)
    )


def jpeg(width: int, height: int, **options: Any) -> bytes:
    return encode(picture(width, height), "JPEG", quality=90, **options)


def drafted(data: bytes, size: Size) -> Image.Image:
    """What Pillow itself makes of it."""
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(data))
    image.draft(None, size)
    return image.convert("RGB")


def at_least(data: bytes, size: Size) -> tuple[Image.Image, Size]:
    return decode_at_least(data, "a file", LIMITS, WHITE, lambda whole: size)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize(
    ("size", "made"),
    [
        ((101, 67), (101, 67)),
        ((100, 67), (101, 67)),
        ((50, 33), (51, 34)),
        ((51, 33), (101, 67)),
        ((26, 16), (51, 34)),
        ((25, 16), (26, 17)),
        ((12, 8), (13, 9)),
        ((1, 1), (13, 9)),
        ((500, 1), (101, 67)),
    ],
)
def test_pixels_are_pillows_own(size: Size, made: Size, progressive: bool) -> None:
    data = jpeg(101, 67, progressive=progressive)
    image, whole = at_least(data, size)
    assert (image.size, whole) == (made, (101, 67))
    assert image.tobytes() == drafted(data, size).tobytes()


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_colour_spaces(mode: str) -> None:
    data = encode(picture(64, 64).convert(mode), "JPEG", quality=90)
    image, _ = at_least(data, (16, 16))
    whole = decode(data, "a file", LIMITS, WHITE)
    assert (image.mode, image.size) == ("RGB", (16, 16))
    small = whole.resize((16, 16), Image.Resampling.BOX)
    assert np.abs(np.asarray(image).astype(int) - np.asarray(small)).mean() < 12


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations(orientation: int) -> None:
    """The size that is needed is one of the upright picture."""
    upright = np.asarray(picture(96, 64))
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation](upright)))
    options: dict[str, Any] = {"quality": 100, "subsampling": "4:4:4"}
    data = encode(stored, "JPEG", exif=exif_of(orientation), **options)
    image, whole = at_least(data, (48, 8))
    assert (image.size, whole) == ((48, 32), (96, 64))
    expected = picture(96, 64).resize((48, 32), Image.Resampling.BOX)
    assert np.abs(np.asarray(image).astype(int) - np.asarray(expected)).mean() < 6


def test_only_jpeg_and_only_where_it_is_asked_for() -> None:
    png = encode(picture(64, 64), "PNG")
    assert at_least(png, (8, 8))[0].tobytes() == picture(64, 64).tobytes()
    data = jpeg(64, 64)
    whole = decode_at_least(data, "a file", LIMITS, WHITE, None)[0]
    assert whole.tobytes() == decode(data, "a file", LIMITS, WHITE).tobytes()


def lossless(width: int, height: int) -> bytes:
    """A gray lossless frame (SOF3): predictor 1, every difference 0 and coded in one bit."""
    frame = struct.pack(">HBHHB", 11, 8, height, width, 1) + bytes([1, 0x11, 0])
    table = struct.pack(">HB16B", 20, 0, 1, *bytes(15)) + bytes(1)
    scan = struct.pack(">HB", 8, 1) + bytes([1, 0, 1, 0, 0])
    data = bytes((width * height + 7) // 8)
    return (
        b"\xff\xd8\xff\xc4" + table + b"\xff\xc3" + frame + b"\xff\xda" + scan + data + b"\xff\xd9"
    )


def test_frames_without_frequencies_are_decoded_whole() -> None:
    """Where libjpeg knows them at all (libjpeg-turbo 3)."""
    data = lossless(640, 480)
    try:
        whole = decode(data, "a file", LIMITS, WHITE)
    except ImageError:
        pytest.skip("this libjpeg has no lossless frames")
    assert at_least(data, (8, 8))[0].tobytes() == whole.tobytes()


@pytest.mark.parametrize("cut", [20, 500, 1500])
def test_checks_are_the_same(cut: int) -> None:
    data = jpeg(101, 67)
    with pytest.raises(ImageError, match=r"cut short|damaged"):
        at_least(data[:cut], (8, 8))
    with pytest.raises(ImageError, match="pixels"):
        decode_at_least(data, "a", ImageLimits(max_pixels=101 * 67 - 1), WHITE, lambda _: (8, 8))


def document(rule: Rule, scaled: bool | None = True) -> models.Yaml:
    resize = {"rule": rule, "size": [8, 8], "filter": "bicubic"}
    changed = models.changed(models.COLOUR, "golden", ...)
    changed["preprocess"] = {**changed["preprocess"], "resize": resize}
    if rule == "shortest-side":
        changed["preprocess"]["crop"] = {"rule": "center", "size": [8, 8]}
    if scaled is not None:
        changed["preprocess"]["jpeg_scaled_decoding"] = scaled
    return changed


def tensor(data: bytes, rule: Rule, scaled: bool | None) -> np.ndarray[Any, Any]:
    description = model_yaml.parse(models.text(document(rule, scaled)))
    request = Request("m", "s", data)
    made = Pipeline(description, ("r", "g", "b"), LIMITS).prepare(request, "NHWC")["image"]
    return np.asarray(made[0])


@pytest.mark.parametrize("rule", ["shortest-side", "stretch", "letterbox"])
def test_tensor_is_drafted_then_scaled_as_the_whole_would_be(rule: Rule) -> None:
    """101 x 67 becomes 12 x 8 by the short side; a reckoning from 26 x 17 would say 12 x 8 too,
    one from 13 x 9 would say 11 x 8."""
    data = jpeg(101, 67)
    size = {"shortest-side": (12, 8), "stretch": (8, 8), "letterbox": (8, 5)}[rule]
    small = drafted(data, size).resize(size, Image.Resampling.BICUBIC)
    if rule == "shortest-side":
        small = small.crop((2, 0, 10, 8))
    if rule == "letterbox":
        box = Image.new("RGB", (8, 8))
        box.paste(small, (0, 1))
        small = box
    expected = np.asarray(small, np.float32) / np.float32(255)
    assert tensor(data, rule, True) == pytest.approx(expected, abs=1e-6)
    assert np.abs(tensor(data, rule, False) - expected).max() > 1e-3


@pytest.mark.parametrize("size", [(8, 8), (15, 9), (3, 40)])
def test_small_images_are_untouched(size: Size) -> None:
    data = jpeg(*size)
    assert (tensor(data, "stretch", True) == tensor(data, "stretch", False)).all()


def test_digest_of_bundles_without_the_key_is_what_it_was() -> None:
    digests = [
        digest_of_pipeline(model_yaml.parse(models.text(document("stretch", scaled))))
        for scaled in (None, False, True)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_needs_a_resize() -> None:
    without = document("stretch")
    del without["preprocess"]["resize"]
    with pytest.raises(DescriptionError, match="needs a resize"):
        model_yaml.parse(models.text(without))
