"""What the tensors of a model file tell, whichever engine reads it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.backends.binding import NativeTensor


def covered(tensor: NativeTensor) -> tuple[float, float] | None:
    """Returns the smallest and largest real value of a quantised tensor, None for others."""
    import numpy as np

    if tensor.scale is None:
        return None
    bounds = np.iinfo(tensor.dtype)
    low, high = ((int(q) - tensor.zero_point) * tensor.scale for q in (bounds.min, bounds.max))
    return float(np.float32(low)), float(np.float32(high))


def shown(tensors: Sequence[NativeTensor]) -> str:
    """Returns tensors as a message shows them."""
    return ", ".join(f"{one.name} {[axis or '?' for axis in one.shape]}" for one in tensors)
