"""What a container's check hands on to the decoder, and the faults that all of them share."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge_agent.errors import ImageError

AGAIN: Final = "fetch or export the file again"
# Pillow keeps a pointer for each row, so that a picture of single pixels takes many times its own
# bytes; no camera makes one, and JPEG, GIF and WebP can't hold a longer side.
MAX_SIDE: Final = 65_535


class Canvas(NamedTuple):
    """Where a frame stands on a larger picture, in pixels; the rest shows the background."""

    width: int
    height: int
    left: int
    top: int


class Contents(NamedTuple):
    """A checked image file, ready for Pillow.

    Attributes:
        data: The file with only what decides pixels.
        orientation: EXIF's orientation, 1..8.
        canvas: The picture around the frame, where the frame is only a part of it.
        white: Sample value of white in 16-bit grayscale; None where the range isn't known.
        inverted: Whether 0 is white in 16-bit grayscale.
        is_scalable: Whether the decoder can make it at 1/2, 1/4 or 1/8 of its size.
    """

    data: bytes
    orientation: int = 1
    canvas: Canvas | None = None
    white: int | None = None
    inverted: bool = False
    is_scalable: bool = False


def cut_short(what: str) -> ImageError:
    """Returns the error for a file that ends too early."""
    return ImageError(f"the file is cut short: {what}", hint=AGAIN)


def damaged(what: str) -> ImageError:
    """Returns the error for a file that contradicts its own format."""
    return ImageError(f"the file is damaged: {what}", hint=AGAIN)


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Checks a size that a header claims, before anything is allocated for it.

    Raises:
        ImageError: A side is zero or above 65,535, or there are more than ``max_pixels`` pixels.
    """
    if width < 1 or height < 1:
        raise ImageError(f"the image is empty: {width} x {height} pixels", hint=AGAIN)
    if max(width, height) > MAX_SIDE:
        raise ImageError(
            f"the image has {width} x {height} pixels, the limit for a side is {MAX_SIDE}",
            hint="scale it down",
        )
    if width * height > max_pixels:
        raise ImageError(
            f"the image has {width} x {height} = {width * height} pixels, "
            f"more than the limit of {max_pixels}",
            hint="scale it down, or raise max_image_megapixels in config.toml",
        )


def zero_tail(data: bytes, start: int, end: int) -> int:
    """Returns how many zero bytes ``data[start:end]`` ends in."""
    part = data[start:end]
    return len(part) - len(part.rstrip(b"\0"))
