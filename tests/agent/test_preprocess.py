"""Image to tensor: torchvision's geometry and the plain recipe, written out independently."""

from __future__ import annotations

import timeit
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edge_agent.description import Crop, Normalize, Preprocess, Resize, TensorSpec
from edge_agent.errors import ImageError
from edge_agent.images import ImageLimits, decode
from edge_agent.preprocess import to_tensor

PHOTOS = Path(__file__).parents[2] / "photos"
DEMO = Preprocess(
    input="images",
    color="RGB",
    resize=Resize(rule="shortest-side", size=(256, 256), filter="bicubic"),
    crop=Crop(rule="center", size=(224, 224)),
    normalize=Normalize(mean=(127, 127, 127), std=(128, 128, 128)),
)
LAYOUTS: tuple[Literal["NCHW", "NHWC"], ...] = ("NCHW", "NHWC")


def spec_of(
    height: int | str, width: int | str, dtype: Any = "float32", channels: int = 3
) -> TensorSpec:
    return TensorSpec(
        name="images", dtype=dtype, shape=("N", channels, height, width), layout="NCHW"
    )


SPEC = spec_of(224, 224)


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


def torchvision(image: Image.Image, resize: int, crop: int) -> np.ndarray[Any, Any]:
    """Resize(resize, BICUBIC) and CenterCrop(crop) of torchvision 0.20 on a PIL image."""
    w, h = image.size
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = resize, int(resize * long / short)
    new_w, new_h = (new_short, new_long) if w <= h else (new_long, new_short)
    image = image.resize((new_w, new_h), Image.Resampling.BICUBIC)
    top = int(round((new_h - crop) / 2.0))  # noqa: RUF046  as the original has it
    left = int(round((new_w - crop) / 2.0))  # noqa: RUF046
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


@pytest.mark.parametrize("photo", ["coffee.png", "chelsea.png", "rocket.jpg"])
def test_the_demo_model_gets_the_plain_recipe_bit_for_bit(photo: str) -> None:
    image = decode((PHOTOS / photo).read_bytes(), photo, ImageLimits(), (255, 255, 255))
    with Image.open(PHOTOS / photo) as plain:
        cut = torchvision(plain.convert("RGB"), 256, 224)
    wanted = (cut.astype(np.float32) - np.float32(127)) / np.float32(128)
    nchw = to_tensor(image, DEMO, SPEC, "NCHW", photo)
    nhwc = to_tensor(image, DEMO, SPEC, "NHWC", photo)
    assert nchw.tobytes() == wanted.transpose(2, 0, 1).tobytes()
    assert nhwc.tobytes() == wanted.tobytes()
    assert nchw.shape == (1, 3, 224, 224)
    assert nhwc.shape == (1, 224, 224, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.integers(0, 9))
def test_geometry_is_torchvisions(width: int, height: int, size: int, less: int) -> None:
    crop = max(1, size - less)
    pre = Preprocess(
        input="images",
        color="RGB",
        resize=Resize(rule="shortest-side", size=(size, size), filter="bicubic"),
        crop=Crop(rule="center", size=(crop, crop)),
    )
    image = noise(width, height)
    made = to_tensor(image, pre, spec_of(crop, crop, "uint8"), "NHWC", "x")
    assert np.array_equal(made[0], torchvision(image, size, crop))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("color", ["RGB", "BGR", "GRAY"])
@pytest.mark.parametrize(
    ("dtype", "normalised"),  # model.yaml refuses a normalised uint8
    [("uint8", False), *((f, n) for f in ("float32", "float16") for n in (False, True))],
)
def test_colours_layouts_and_types(layout: Any, color: Any, dtype: str, normalised: bool) -> None:
    image = noise(8, 6)
    rgb = np.asarray(image)
    wanted = {
        "RGB": rgb,
        "BGR": rgb[:, :, ::-1],
        "GRAY": np.asarray(image.convert("L"))[:, :, None],
    }[color]
    channels = wanted.shape[2]
    norm = None
    if normalised:
        mean, std = (0.485, 0.456, 0.406)[:channels], (0.229, 0.224, 0.225)[:channels]
        norm = Normalize(divisor=255, mean=mean, std=std)
        wanted = (
            wanted.astype(np.float32) / np.float32(255) - np.array(mean, np.float32)
        ) / np.array(std, np.float32)
    pre = Preprocess(input="images", color=color, normalize=norm)
    made = to_tensor(image, pre, spec_of(6, 8, dtype, channels), layout, "x")
    if layout == "NCHW":
        wanted = wanted.transpose(2, 0, 1)
    assert made.dtype == np.dtype(dtype)
    assert made.flags.c_contiguous
    assert made.flags.writeable
    assert made[0].tobytes() == wanted.astype(dtype).tobytes()


def test_stretch_takes_height_first() -> None:
    image = noise(30, 20)
    pre = Preprocess(
        input="images", color="RGB", resize=Resize(rule="stretch", size=(5, 9), filter="lanczos")
    )
    made = to_tensor(image, pre, spec_of(5, 9, "uint8"), "NHWC", "x")
    assert np.array_equal(made[0], np.asarray(image.resize((9, 5), Image.Resampling.LANCZOS)))


@pytest.mark.parametrize(
    ("size", "inner"),
    [
        ((40, 20), (0, 5, 20, 10)),
        ((20, 40), (5, 0, 10, 20)),
        ((10, 10), (0, 0, 20, 20)),
        ((30, 20), (0, 3, 20, 13)),
        ((10000, 1), (0, 9, 20, 1)),
        ((1, 10000), (9, 0, 1, 20)),
    ],
)
def test_letterbox_is_centred_and_filled(
    size: tuple[int, int], inner: tuple[int, int, int, int]
) -> None:
    image = noise(*size)
    resize = Resize(rule="letterbox", size=(20, 20), filter="bilinear", fill=(1, 2, 3))
    pre = Preprocess(input="images", color="RGB", resize=resize)
    made = to_tensor(image, pre, spec_of(20, 20, "uint8"), "NHWC", "x")[0]
    left, top, width, height = inner
    wanted = np.full((20, 20, 3), (1, 2, 3), np.uint8)
    wanted[top : top + height, left : left + width] = np.asarray(
        image.resize((width, height), Image.Resampling.BILINEAR)
    )
    assert np.array_equal(made, wanted)


@pytest.mark.parametrize("size", [(1, 10000), (10000, 1)])
def test_extreme_shapes_are_refused_before_they_grow(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError, match=r"655360000 pixels, more than the limit of 64000000"):
        to_tensor(noise(*size), DEMO, SPEC, "NCHW", "x")


def test_without_resize_another_size_is_refused_with_both_sizes() -> None:
    pre = Preprocess(input="images", color="RGB")
    with pytest.raises(
        ImageError, match=r"is 30 x 20 pixels, but images takes 224 x 224"
    ) as caught:
        to_tensor(noise(30, 20), pre, SPEC, "NCHW", "photo.png")
    assert caught.value.path == "photo.png"
    assert to_tensor(noise(224, 224), pre, SPEC, "NCHW", "x").shape == (1, 3, 224, 224)


def test_named_axes_take_any_size() -> None:
    pre = Preprocess(input="images", color="RGB")
    assert to_tensor(noise(30, 20), pre, spec_of("H", "W"), "NCHW", "x").shape == (1, 3, 20, 30)


def test_a_crop_never_pads() -> None:
    pre = Preprocess(input="images", color="RGB", crop=Crop(rule="center", size=(224, 224)))
    with pytest.raises(ImageError, match=r"300 x 223 pixels where 224 x 224 are to be cut"):
        to_tensor(noise(300, 223), pre, SPEC, "NCHW", "x")


def test_the_shape_is_read_in_its_own_layout() -> None:
    spec = TensorSpec(name="images", dtype="uint8", shape=(1, 20, 30, 3), layout="NHWC")
    pre = Preprocess(input="images", color="RGB")
    assert to_tensor(noise(30, 20), pre, spec, "NCHW", "x").shape == (1, 3, 20, 30)


def test_pillows_global_pixel_limit_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert to_tensor(noise(300, 260), DEMO, SPEC, "NCHW", "x").shape == (1, 3, 224, 224)


def test_after_resizing_it_is_fast() -> None:
    image = noise(256, 256)
    best = min(
        timeit.repeat(lambda: to_tensor(image, DEMO, SPEC, "NCHW", "x"), number=1, repeat=20)
    )
    # About 0.4 ms here; the margin is for a loaded machine.
    assert best < 0.005
