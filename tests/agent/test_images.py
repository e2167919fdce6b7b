"""What a viewer would show, for every format and mode that Pillow can write."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from PIL import Image, features

from edge_agent.errors import ImageError
from edge_agent.images import ImageLimits, decode

LIMITS = ImageLimits()
PINK = (250, 100, 150)
PHOTOS = Path(__file__).parents[2] / "photos"


def encode(image: Image.Image, form: str, **options: Any) -> bytes:
    if form == "AVIF" and not ("avif" in features.modules and features.check("avif")):
        pytest.skip("no AVIF in this build of Pillow")
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def show(data: bytes) -> Image.Image:
    image = decode(data, "a file", LIMITS, PINK)
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


def translucent() -> Image.Image:
    image = scene().convert("RGBA")
    image.putalpha(scene().getchannel("R"))
    return image


def over_pink(rgba: Image.Image) -> np.ndarray[Any, Any]:
    values = np.asarray(rgba).astype(float)
    alpha = values[:, :, 3:] / 255
    return values[:, :, :3] * alpha + np.array(PINK) * (1 - alpha)


# Pillow before 12 can't read the uncompressed YCbCr TIFF that it writes itself.
YCBCR_TIFF = ("YCbCr",) if int(PIL.__version__.split(".")[0]) >= 12 else ()


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        *(("PNG", mode) for mode in ("1", "L", "P", "RGB")),
        *(("TIFF", mode) for mode in ("1", "L", "P", "RGB", "CMYK", *YCBCR_TIFF)),
        *(("BMP", mode) for mode in ("1", "L", "P", "RGB")),
        *(("GIF", mode) for mode in ("1", "L", "P")),
        *(("PPM", mode) for mode in ("1", "L", "RGB")),
        *(("JPEG", mode) for mode in ("L", "RGB", "CMYK", "YCbCr")),
    ],
)
def test_opaque_modes_look_as_pillow_converts_them(form: str, mode: str) -> None:
    data = encode(scene().convert(mode), form)
    assert np.array_equal(pixels(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("form", ["PNG", "TIFF", "BMP", "PPM", "GIF", "WEBP"])
def test_lossless_formats_keep_every_pixel(form: str) -> None:
    options = {"lossless": True} if form == "WEBP" else {}
    source = scene().quantize(64) if form == "GIF" else scene()
    assert np.array_equal(
        pixels(encode(source, form, **options)), np.asarray(source.convert("RGB"))
    )


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_tiff_compressions(compression: str, byte_order: str) -> None:
    data = encode(scene(), "TIFF", compression=compression)
    assert np.array_equal(pixels(data), np.asarray(scene()))


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 2}, {"quality": 100}])
def test_jpeg_variants(options: dict[str, Any]) -> None:
    data = encode(scene((64, 48)), "JPEG", **options)
    assert np.array_equal(pixels(data), np.asarray(Image.open(io.BytesIO(data))))


@pytest.mark.parametrize("form", ["AVIF", "WEBP"])
def test_lossy_formats_come_close(form: str) -> None:
    assert (
        np.abs(
            pixels(encode(scene((64, 48)), form, quality=95)) - np.asarray(scene((64, 48)))
        ).mean()
        < 12
    )


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_transparency_shows_the_background(form: str) -> None:
    options = {"lossless": True, "exact": True} if form == "WEBP" else {}
    shown = pixels(encode(translucent(), form, **options))
    assert np.abs(shown - over_pink(translucent())).max() <= 1


@pytest.mark.parametrize("mode", ["LA", "PA"])
def test_two_channel_transparency(mode: str) -> None:
    source = translucent().convert("LA") if mode == "LA" else translucent().quantize(64)
    if mode == "PA":
        source = source.convert("PA")
        source.putalpha(translucent().getchannel("A"))
    data = encode(source, "PNG" if mode == "LA" else "TIFF")
    assert np.abs(pixels(data) - over_pink(source.convert("RGBA"))).max() <= 1


def test_premultiplied_transparency() -> None:
    raw = Image.merge("RGBA", [Image.new("L", (4, 4), value) for value in (64, 0, 32, 128)])
    data = encode(raw, "TIFF")
    # ExtraSamples 2 (unassociated) becomes 1 (associated alpha).
    place = data.index(struct.pack("<HHIHH", 338, 3, 1, 2, 0))
    data = data[: place + 8] + b"\1" + data[place + 9 :]
    wanted = np.array([64, 0, 32]) + np.array(PINK) * (127 / 255)
    assert np.abs(pixels(data) - wanted).max() <= 1.5


@pytest.mark.parametrize("mode", ["P", "L", "1", "RGB"])
def test_png_transparent_colour(mode: str) -> None:
    source = Image.new(mode, (4, 2), 0 if mode != "RGB" else (1, 2, 3))
    source.putpixel((1, 1), {"P": 1, "L": 200, "1": 255, "RGB": (9, 8, 7)}[mode])  # type: ignore[arg-type]
    if mode == "P":
        source.putpalette([5, 6, 7, 50, 60, 70])
    key = {"P": b"\xff\0", "L": 200, "1": 1, "RGB": (9, 8, 7)}[mode]
    shown = show(encode(source, "PNG", transparency=key))
    assert shown.getpixel((1, 1)) == PINK
    assert shown.getpixel((0, 0)) == source.convert("RGB").getpixel((0, 0))


def png(depth: int, color: int, width: int, rows: list[bytes], transparent: bytes = b"") -> bytes:
    import zlib

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(rows), depth, color, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    key = chunk(b"tRNS", transparent) if transparent else b""
    return b"\x89PNG\r\n\x1a\n" + head + key + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(("depth", "key", "row"), [(2, 1, b"\x1b"), (4, 1, b"\x01\x2f")])
def test_png_of_few_bits_compares_the_transparent_value_before_scaling(
    depth: int, key: int, row: bytes
) -> None:
    shown = pixels(png(depth, 0, 4, [row], struct.pack(">H", key)))[0]
    values = [0, 1, 2, 3] if depth == 2 else [0, 1, 2, 15]
    top = 2**depth - 1
    assert shown.tolist() == [
        list(PINK) if value == key else [value * 255 // top] * 3 for value in values
    ]


SIXTEEN = [0, 1, 128, 129, 255, 256, 257, 32767, 32768, 65278, 65407, 65535]


def test_sixteen_bit_png_is_scaled_with_rounding() -> None:
    row = struct.pack(">12H", *SIXTEEN)
    shown = pixels(png(16, 0, 12, [row]))[0, :, 0]
    assert shown.tolist() == [round(value * 255 / 65535) for value in SIXTEEN]
    with_key = show(png(16, 0, 12, [row], struct.pack(">H", 257)))
    assert with_key.getpixel((6, 0)) == PINK
    assert with_key.getpixel((5, 0)) == (1, 1, 1)


def test_sixteen_bit_colour_with_a_transparent_colour_is_refused() -> None:
    data = png(16, 2, 1, [bytes(6)], bytes(6))
    with pytest.raises(ImageError, match="16-bit RGB PNG"):
        show(data)


@pytest.mark.parametrize("form", ["TIFF", "TIFF big endian", "TIFF lzw", "TIFF inverted", "PGM"])
def test_sixteen_bit_elsewhere(form: str) -> None:
    wanted = [round(value * 255 / 65535) for value in SIXTEEN]
    samples = np.array([SIXTEEN], np.uint16)
    if form == "PGM":
        data = b"P5 12 1 65535\n" + samples.astype(">u2").tobytes()
    elif form == "TIFF big endian":
        image = Image.frombytes("I;16B", (12, 1), samples.astype(">u2").tobytes())
        data = encode(image, "TIFF")
        assert data[:2] == b"MM"
    else:
        options = {"compression": "tiff_lzw"} if form == "TIFF lzw" else {}
        data = encode(Image.fromarray(samples), "TIFF", **options)
    if form == "TIFF inverted":
        place = data.index(struct.pack("<HHIH", 262, 3, 1, 1))
        data = data[: place + 8] + b"\0" + data[place + 9 :]
        wanted = [255 - value for value in wanted]
    assert pixels(data)[0, :, 0].tolist() == wanted


@pytest.mark.parametrize("top", [1, 100, 254, 256, 4095])
def test_netpbm_ranges_are_scaled_with_rounding(top: int) -> None:
    values = np.array([0, 1, top // 2, top - 1, top, top + 1], ">u2" if top > 255 else np.uint8)
    wanted = [round(min(value, top) * 255 / top) for value in values.tolist()]
    gray = pixels(b"P5\n# made by hand\n6 1 # six\n%d\n" % top + values.tobytes())
    assert np.abs(gray[0, :, 0] - wanted).max() <= (top % 2 == 0)
    color = pixels(b"P6 2 1 %d\n" % top + values.tobytes())
    assert color.reshape(-1).tolist() == gray[0, :, 0].tolist()


@pytest.mark.parametrize("mode", ["F", "I", "LAB"])
def test_modes_without_a_known_range_are_refused_by_name(mode: str) -> None:
    data = encode(Image.new(mode, (4, 4)), "TIFF")
    named = "SampleFormat 2" if mode == "I" else f"mode {mode} "
    with pytest.raises(ImageError, match=named) as caught:
        show(data)
    assert caught.value.path == "a file"
    assert "convert" in str(caught.value.hint)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "AVIF"])
def test_animations_show_their_first_frame(form: str) -> None:
    frames = [Image.new("RGB", (16, 16), color) for color in ("red", "green", "blue")]
    data = encode(frames[0], form, save_all=True, append_images=frames[1:], duration=50)
    assert np.abs(pixels(data) - np.array([255, 0, 0])).max() <= 4


def test_a_gif_frame_smaller_than_its_canvas_leaves_the_background() -> None:
    small = encode(Image.new("P", (2, 2), 0), "GIF")
    place = small.index(b",\0\0\0\0")
    data = small[:6] + struct.pack("<HH", 5, 4) + small[10 : place + 1]
    data += struct.pack("<HH", 4, 1) + small[place + 5 :]
    shown = show(data)
    assert shown.size == (5, 4)
    assert shown.getpixel((0, 0)) == PINK
    assert shown.getpixel((4, 1)) == (0, 0, 0)


def test_an_mpo_shows_its_first_picture() -> None:
    data = encode(scene((32, 32)), "MPO", save_all=True, append_images=[Image.new("RGB", (8, 8))])
    assert show(data).size == (32, 32)


@pytest.mark.parametrize("photo", ["coffee.png", "chelsea.png", "rocket.jpg"])
def test_photos(photo: str) -> None:
    with Image.open(PHOTOS / photo) as image:
        wanted = np.asarray(image.convert("RGB"))
    assert np.array_equal(pixels((PHOTOS / photo).read_bytes()), wanted)
