"""Telling probabilities from logits by a model's answer to noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_agent.types import Tensor


def noise(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Returns random pixels: 0 to 255 as uint8, else 0 to 1."""
    import numpy as np

    pixels = np.random.default_rng(0).integers(0, 256, shape)
    return (pixels if dtype == "uint8" else pixels / 255).astype(dtype)


def are_probabilities(scores: Tensor) -> bool:
    """Tells probabilities from logits: none is negative, and together they make one."""
    values = scores.astype("float64")
    return abs(float(values.sum()) - 1) < 1e-2 and float(values.min()) >= 0
