"""What can be said of a bare model on the command line."""

from __future__ import annotations

from enum import StrEnum


class Preset(StrEnum):
    """Choices of --preset: how pixels become numbers."""

    imagenet = "imagenet"
    zero_one = "zero-one"
    minus_one_one = "minus-one-one"
    efficientnet_lite = "efficientnet-lite"
    plain = "plain"


class Layout(StrEnum):
    """Choices of --layout."""

    NCHW = "NCHW"
    NHWC = "NHWC"


class Color(StrEnum):
    """Choices of --color."""

    RGB = "RGB"
    BGR = "BGR"


class ResizeRule(StrEnum):
    """Choices of --resize: how an image is brought to size."""

    shortest_side = "shortest-side"
    stretch = "stretch"
    letterbox = "letterbox"
