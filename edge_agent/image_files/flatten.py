"""Every mode that Pillow decodes to, made plain RGB, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from PIL import Image

from edge_agent.errors import ImageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_PLAIN: Final = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
# Pillow reaches RGBA from a premultiplied mode only by its straight sibling.
_WITH_ALPHA: Final = {"LA": None, "PA": None, "RGBA": None, "La": "LA", "RGBa": "RGBA"}
_BAND_PIXELS: Final = 1 << 20
_WIDE: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I"})


class Scale(NamedTuple):
    """The range of 16-bit grayscale: sample value of white, and whether 0 is white instead."""

    white: int | None
    inverted: bool


def to_rgb(image: Image.Image, scale: Scale, background: tuple[int, int, int]) -> Image.Image:
    """Converts a decoded image to 8-bit RGB.

    Args:
        image: A loaded image of any mode.
        scale: Range of its samples, where they are wider than 8 bits.
        background: RGB colour under transparent pixels.

    Raises:
        ImageError: The range of its samples isn't known.
    """
    key = image.info.get("transparency")
    wide = image.mode in _WIDE and scale.white is not None
    see_through = image.mode in _WITH_ALPHA or (
        isinstance(key, int)
        if image.mode in ("1", "L")
        else key is not None and image.mode in ("P", "RGB")
    )
    if wide or see_through:
        result = Image.new("RGB", image.size, background)
        # A band at a time: whole, the steps between would take several times the picture.
        rows = max(1, _BAND_PIXELS // image.width)
        for top in range(0, image.height, rows):
            band = image.crop((0, top, image.width, min(top + rows, image.height)))
            flat, mask = _from_wide(band, scale) if wide else _split(band)
            result.paste(flat, (0, top), mask)
        return result
    if image.mode == "RGB":
        return image
    if image.mode in _PLAIN:
        return image.convert("RGB")
    raise ImageError(
        f"pixels of Pillow's mode {image.mode} have no known black and white",
        hint="convert the image to 8-bit RGB or grayscale, or to 16-bit grayscale PNG",
    )


def _split(image: Image.Image) -> tuple[Image.Image, Image.Image]:
    """Returns colours and opacity."""
    key = image.info.get("transparency")
    if image.mode in ("1", "L") and isinstance(key, int):
        gray = image.convert("L")
        return gray.convert("RGB"), gray.point([255 * (value != key) for value in range(256)])
    straight = _WITH_ALPHA.get(image.mode)
    full = (image.convert(straight) if straight else image).convert("RGBA")
    return full.convert("RGB"), full.getchannel("A")


def _from_wide(image: Image.Image, scale: Scale) -> tuple[Image.Image, Image.Image | None]:
    """Scales 0..white to 0..255, rounded; Pillow's own conversion clips at 255 instead."""
    import numpy as np

    white = scale.white or 65535
    samples: NDArray[np.generic] = np.asarray(image)
    steps = np.arange(65536, dtype=np.uint32).clip(max=white)
    table = ((steps * 255 + white // 2) // white).astype(np.uint8)
    if scale.inverted:
        table = 255 - table
    gray = Image.fromarray(table[samples]).convert("RGB")
    key = image.info.get("transparency")
    if not isinstance(key, int):
        return gray, None
    return gray, Image.fromarray(np.where(samples == key, 0, 255).astype(np.uint8))
