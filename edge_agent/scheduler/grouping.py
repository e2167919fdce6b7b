"""Which queries may run together, and how large they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from edge_agent.calls import Query

GroupKey: TypeAlias = tuple[object, ...]


def rows(query: Query) -> int:
    """Returns how many rows a query has: its images, or the first axis of its tensors."""
    if query.images:
        return len(query.images)
    shape = query.tensors[0].shape if query.tensors else ()
    return max(1, shape[0]) if shape else 1


def group_key(query: Query) -> GroupKey | None:
    """Returns what queries that may run together agree in; None for one that runs alone.

    A query whose inputs disagree on their number of rows runs alone: it is refused there, and
    nobody else with it.
    """
    number = len(query.images) or rows(query)
    for tensor in query.tensors:
        if not tensor.shape or tensor.shape[0] != number:
            return None
    if not query.tensors and not query.images:
        return None
    return (
        query.wants,
        query.top_k,
        query.outputs,
        bool(query.images),
        *[(tensor.name, tensor.dtype, tensor.shape[1:]) for tensor in query.tensors],
    )
