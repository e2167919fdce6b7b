"""Upright RGB image -> the model's input tensor, as model.yaml says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from edge_agent.errors import ImageError
from edge_agent.images import ImageLimits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edge_agent.description import Layout, Normalize, Preprocess, Resize, TensorSpec
    from edge_agent.images import Size

_DEFAULT_LIMITS: Final = ImageLimits()
_FILTERS: Final = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def to_tensor(
    image: Image.Image,
    pre: Preprocess,
    spec: TensorSpec,
    layout: Layout,
    name: str,
    limits: ImageLimits = _DEFAULT_LIMITS,
    whole: Size | None = None,
) -> NDArray[Any]:
    """Scales, crops, orders and normalises one image.

    Args:
        image: Upright, mode ``RGB``.
        pre: What to do. GRAY is ITU-R 601 luma (Pillow's ``L``) of the scaled and cropped image.
        spec: The tensor to make: its dtype, and in its own layout its height and width.
        layout: Order of the axes of the result.
        name: What to call the image in errors.
        limits: Caps the pixels of the scaled image.
        whole: (width, height) of the image in its file, where it was decoded at less: what it
            becomes is reckoned from these.

    Returns:
        Shape [1, C, H, W] or [1, H, W, C], C-contiguous, of ``spec.dtype``: 0..255 without
        ``normalize``, else (x / divisor - mean) / std, computed in float32.

    Raises:
        ImageError: The image is not of the tensor's size, smaller than the crop, or so narrow
            that scaling it takes more than ``limits.max_pixels`` pixels.
    """
    whole = whole or image.size
    try:
        scaled = _scaled(image, whole, pre.resize, limits.max_pixels) if pre.resize else image
        cropped = _cropped(scaled, pre.crop.size) if pre.crop else scaled
        _check_size(cropped, whole, spec, layout)
    except ImageError as error:
        raise ImageError(error.message, path=name, hint=error.hint) from error
    pixels = _channels(cropped, pre.color)
    if layout == "NCHW":
        pixels = pixels.transpose(2, 0, 1)
    dtype = np.dtype(spec.dtype)
    if pre.normalize is None:
        return np.array(pixels, dtype=dtype, order="C")[np.newaxis]
    tensor = _normalised(pixels, pre.normalize, channel_axis=0 if layout == "NCHW" else 2)
    return tensor.astype(dtype, copy=False)[np.newaxis]


def scaled_size(whole: Size, resize: Resize) -> Size:
    """Returns (width, height) that `resize` makes of an image of that size, bars not included."""
    height, width = resize.size
    if resize.rule == "stretch":
        return width, height
    if resize.rule == "shortest-side":
        return _shortest_side(whole, width)
    scale = min(width / whole[0], height / whole[1])
    return (
        min(width, max(1, round(whole[0] * scale))),
        min(height, max(1, round(whole[1] * scale))),
    )


def _scaled(image: Image.Image, whole: Size, resize: Resize, max_pixels: int) -> Image.Image:
    size = scaled_size(whole, resize)
    box = resize.size[::-1] if resize.rule == "letterbox" else size
    if box[0] * box[1] > max_pixels:
        raise ImageError(
            f"scaling {whole[0]} x {whole[1]} to {box[0]} x {box[1]} makes "
            f"{box[0] * box[1]} pixels, more than the limit of {max_pixels}",
            hint="crop the image to a less extreme shape",
        )
    if size != image.size:
        image = image.resize(size, _FILTERS[resize.filter])
    return _with_bars(image, box, resize.fill) if box != size else image


def _shortest_side(size: tuple[int, int], short: int) -> tuple[int, int]:
    """Returns (width, height). Source: torchvision, ``_compute_resized_output_size``."""
    width, height = size
    long = int(short * max(size) / min(size))
    return (short, long) if width <= height else (long, short)


def _with_bars(image: Image.Image, size: Size, fill: tuple[int, int, int]) -> Image.Image:
    box = Image.new("RGB", size, fill)
    box.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return box


def _cropped(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Cuts the middle out, and refuses where torchvision's ``center_crop`` would pad."""
    height, width = size
    if width > image.width or height > image.height:
        raise ImageError(
            f"the image is {image.width} x {image.height} pixels where "
            f"{width} x {height} are to be cut out",
            hint="use a larger image",
        )
    # `round` rounds half to even, as torchvision's does.
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    # The same pixels as `crop`, which would warn by Pillow's global pixel limit.
    box = (left, top, left + width, top + height)
    return image.resize((width, height), Image.Resampling.NEAREST, box=box)


def _check_size(made: Image.Image, given: Size, spec: TensorSpec, layout: Layout) -> None:
    first = 2 if (spec.layout or layout) == "NCHW" else 1
    height, width = spec.shape[first : first + 2]
    # A named axis takes any length.
    if all(
        isinstance(axis, str) or axis == side
        for axis, side in ((height, made.height), (width, made.width))
    ):
        return
    became = "" if made.size == given else f", scaled and cropped {made.width} x {made.height}"
    raise ImageError(
        f"the image is {given[0]} x {given[1]} pixels{became}, "
        f"but {spec.name} takes {width} x {height}",
        hint="scale the image, or let model.yaml say how (preprocess.resize)",
    )


def _channels(image: Image.Image, color: str) -> NDArray[np.uint8]:
    """Returns uint8 [H, W, C] in the model's channel order."""
    if color == "GRAY":
        return np.asarray(image.convert("L"))[:, :, np.newaxis]
    pixels: NDArray[np.uint8] = np.asarray(image)
    return pixels[:, :, ::-1] if color == "BGR" else pixels


def _normalised(
    pixels: NDArray[np.uint8], norm: Normalize, channel_axis: int
) -> NDArray[np.float32]:
    """Works in place, a channel at a time: no temporaries, and scalars instead of broadcasts."""
    tensor = pixels.astype(np.float32, order="C")
    if norm.divisor != 1:
        tensor /= np.float32(norm.divisor)
    for channel, (mean, std) in enumerate(zip(norm.mean, norm.std, strict=True)):
        part = tensor[channel] if channel_axis == 0 else tensor[:, :, channel]
        part -= np.float32(mean)
        part /= np.float32(std)
    return tensor
