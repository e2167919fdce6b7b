"""Predictions of KServe's v1 protocol: a row of outputs for each instance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edge_agent.server import json_bodies
from edge_agent.server.datatypes import count, numbers

if TYPE_CHECKING:
    from edge_agent.calls import Answer, OutputTensor


def predictions(answers: Sequence[Answer], rows: int) -> list[Any]:
    """Returns one prediction an instance, in their order.

    Args:
        answers: One with all rows, or one for each.
        rows: How many instances there were.

    Returns:
        Nested lists, or objects of such by output where there are several.

    Raises:
        BadInputError: They are too large for JSON.
    """
    found = []
    each = rows if len(answers) == 1 else 1
    outputs = [one for answer in answers for one in answer.outputs]
    json_bodies.check_answer(
        sum([count(one) * (1 if _has_rows(one, each) else each) for one in outputs])
    )
    for answer in answers:
        columns = {one.name: _rows(one, each) for one in answer.outputs}
        for at in range(each):
            row = {name: column[at] for name, column in columns.items()}
            found.append(next(iter(row.values())) if len(row) == 1 else row)
    return found


def _has_rows(one: OutputTensor, rows: int) -> bool:
    return bool(one.shape) and one.shape[0] == rows


def _rows(one: OutputTensor, rows: int) -> list[Any]:
    values = numbers(one.data, one.dtype)
    if _has_rows(one, rows):
        return _nested(values, one.shape)
    # No batch axis: all of it is each instance's.
    return [_nested(values, one.shape) if one.shape else values[0]] * rows


def _nested(values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for at in range(len(shape) - 1, 0, -1):
        length = shape[at]
        values = [values[n * length : (n + 1) * length] for n in range(math.prod(shape[:at]))]
    return values
