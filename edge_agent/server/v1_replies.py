"""Predictions of KServe's v1 protocol: a row of outputs for each instance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edge_agent.server.datatypes import numbers

if TYPE_CHECKING:
    from edge_agent.calls import Answer, OutputTensor


def predictions(answers: Sequence[Answer], rows: int) -> list[Any]:
    """Returns one prediction an instance, in their order.

    Args:
        answers: One with all rows, or one for each.
        rows: How many instances there were.

    Returns:
        Nested lists, or objects of such by output where there are several.
    """
    found = []
    for answer in answers:
        count = rows if len(answers) == 1 else 1
        columns = {one.name: _rows(one, count) for one in answer.outputs}
        for at in range(count):
            row = {name: column[at] for name, column in columns.items()}
            found.append(next(iter(row.values())) if len(row) == 1 else row)
    return found


def _rows(one: OutputTensor, count: int) -> list[Any]:
    values = numbers(one.data, one.dtype)
    if one.shape and one.shape[0] == count:
        return _nested(values, one.shape)
    # No batch axis: all of it is the one instance's.
    return [_nested(values, one.shape) if one.shape else values[0]] * count


def _nested(values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for at in range(len(shape) - 1, 0, -1):
        length = shape[at]
        values = [values[n * length : (n + 1) * length] for n in range(math.prod(shape[:at]))]
    return values
