"""How many scales the quantised weights of an ONNX file have. Pure."""

from __future__ import annotations

import math
from typing import Any


def is_per_tensor(weights: Any, scale: Any, axis: int) -> bool:
    """Tells whether weights of several channels have one scale for all of them.

    Args:
        weights: A TensorProto.
        scale: The TensorProto of its scale; its shape may be [] or [1] where it is one number.
        axis: Where the channels stand in the weights.
    """
    rank = len(weights.dims)
    channels = weights.dims[axis] if -rank <= axis < rank else 0
    return math.prod(scale.dims) == 1 and channels != 1


def axis_of(node: Any, usual: int) -> int:
    """Returns a node's attribute ``axis``, or else the usual one."""
    return next((int(one.i) for one in node.attribute if one.name == "axis"), usual)
