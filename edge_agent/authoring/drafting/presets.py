"""The usual ways in which pixels become numbers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Preset(NamedTuple):
    """How pixels become numbers: `description.Normalize`, and the filter of the resize."""

    divisor: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    filter: str = "bilinear"

    def covers(self) -> tuple[float, float]:
        """Returns the smallest and the largest number that a pixel can become."""
        pairs = list(zip(self.mean, self.std, strict=True))
        low = min((0 - mean) / std for mean, std in pairs)
        return low, max((255 / self.divisor - mean) / std for mean, std in pairs)


_NONE: Final = (0.0, 0.0, 0.0)
_ONE: Final = (1.0, 1.0, 1.0)
PLAIN: Final = "plain"
PRESETS: Final = {
    "imagenet": Preset(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "zero-one": Preset(255.0, _NONE, _ONE),
    "minus-one-one": Preset(127.5, _ONE, _ONE),
    "efficientnet-lite": Preset(1.0, (127.0,) * 3, (128.0,) * 3, "bicubic"),
    PLAIN: Preset(1.0, _NONE, _ONE),
}


def normalize(name: str, channels: int) -> dict[str, Any] | None:
    """Returns `preprocess.normalize` of a preset, None where pixels stay as they are.

    Args:
        name: One of `PRESETS`.
        channels: 1 or 3.
    """
    if name == PLAIN:
        return None
    preset = PRESETS[name]
    return {
        "divisor": preset.divisor,
        "mean": list(preset.mean[:channels]),
        "std": list(preset.std[:channels]),
    }


def reaching(covered: tuple[float, float]) -> list[str]:
    """Returns the presets whose numbers cover a range."""
    low, high = covered
    slack = 0.02 * (high - low)
    return [
        name
        for name, preset in PRESETS.items()
        if abs(preset.covers()[0] - low) < slack and abs(preset.covers()[1] - high) < slack
    ]
