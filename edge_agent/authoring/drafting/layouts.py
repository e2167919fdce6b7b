"""Which tensors are images, and in which order their axes stand. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHANNELS: Final = (1, 3)


def told(
    shape: Sequence[int | None], said: str | None, channels: tuple[int, ...] = _CHANNELS
) -> str | None:
    """Returns the layout of an image tensor.

    Args:
        shape: Four axes; None for an open one.
        said: What its author says, None where the shape has to tell.
        channels: How many channels an image may have.

    Returns:
        None where the shape contradicts its author, or tells nothing.
    """
    channel_axes: dict[str, int | None] = {"NCHW": shape[1], "NHWC": shape[3]}
    sure = [name for name, axis in channel_axes.items() if axis in channels]
    if said:
        return said if channel_axes[said] in (*channels, None) else None
    return sure[0] if len(sure) == 1 else None


def channel_axis(layout: str) -> int:
    """Returns where the channels stand."""
    return 1 if layout == "NCHW" else 3


def first_side(layout: str) -> int:
    """Returns where the height stands; the width follows it."""
    return 2 if layout == "NCHW" else 1


def short_side(size: tuple[int, int]) -> int:
    """Returns to what the short side is usually scaled: 256 where 224 are cut out."""
    return -(-max(size) * 8 // 7)
