"""What a worker said, checked: it may have run a stranger's model, and may say anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from math import isfinite, prod
from typing import Final

from edge_agent.calls import Answer, OutputTensor, Query
from edge_agent.errors import (
    AgentError,
    BadInputError,
    DescriptionError,
    EngineFailedError,
    EngineUnavailableError,
    GoldenMismatchError,
    ImageError,
    MismatchError,
    ModelFileError,
    ModelNotReadyError,
    TensorError,
    UnavailableError,
)
from edge_agent.types import ScoredLabel
from edge_agent.workers.protocol import Answered, Failure, Ran, Refused, TensorPart
from edge_agent.workers.tensor_memory import TensorMemory
from edge_agent.workers.work import Loaded, Outcome

_KINDS: Final[dict[str, type[AgentError]]] = {
    kind.__name__: kind
    for kind in (
        BadInputError,
        DescriptionError,
        EngineFailedError,
        EngineUnavailableError,
        GoldenMismatchError,
        ImageError,
        MismatchError,
        ModelFileError,
        ModelNotReadyError,
        TensorError,
        UnavailableError,
    )
}
_ITEM_BYTES: Final = {
    "bool": 1,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
}
_STAGES: Final = frozenset({"prepare", "infer", "answer"})
_MAX_OUTPUTS: Final = 64
_MAX_AXES: Final = 8
_MAX_NAME: Final = 256
_MAX_TEXT: Final = 4096
_BLOCK_BYTES: Final = 512  # the unit of st_blocks


class UntrueError(Exception):
    """A worker said what can't be; the message goes on after "it …"."""


def failed(failure: Failure) -> AgentError:
    """Returns the error that a worker tells of; of an unknown kind, it is the engine's."""
    kind = _KINDS.get(failure.kind, EngineFailedError)
    path, hint = _cut(failure.path), _cut(failure.hint)
    return kind(_cut(failure.message) or "failed", path=path, hint=hint)


def checked(loaded: Loaded | None) -> Loaded:
    """Returns how a model was loaded.

    Raises:
        UntrueError: It can't be so.
    """
    if loaded is None or not _is_duration(loaded.run_ms) or len(loaded.engine_version) > _MAX_NAME:
        raise UntrueError("told nothing sensible of a model that it loaded")
    return loaded


def outcomes(ran: Ran, queries: Sequence[Query], memory: TensorMemory) -> list[Outcome]:
    """Copies the answers to a batch out of the shared memory.

    Args:
        ran: What the worker said.
        queries: What it was asked.
        memory: Where outputs lie.

    Raises:
        UntrueError: It can't be so.
    """
    if len(ran.items) != len(queries):
        raise UntrueError(f"gave {len(ran.items)} answers to {len(queries)} queries")
    answers = [one for one in ran.items if type(one) is Answered]
    sizes = sum(part.span.size for part in chain.from_iterable(a.outputs for a in answers))
    # Spans may overlap, or lie where nothing was written: copies of those are bounded here.
    if sizes and sizes > os.fstat(memory.descriptor).st_blocks * _BLOCK_BYTES:
        raise UntrueError(f"says that its outputs are {sizes} bytes, more than it has written")
    return [
        failed(one.failure) if isinstance(one, Refused) else _answer(one, query, memory)
        for one, query in zip(ran.items, queries, strict=True)
    ]


def _answer(said: Answered, query: Query, memory: TensorMemory) -> Answer:
    if said.labels:
        if said.outputs or query.wants != "labels":
            raise UntrueError("gave labels that nobody asked for")
        for row in said.labels:
            _check_labels(row, query.top_k)
    if len(said.confident) != len(said.labels):
        raise UntrueError("is confident of other rows than it answered")
    timings = said.timings_ms
    if not (_STAGES.issuperset(timings) and all(map(_is_duration, timings.values()))):
        raise UntrueError("told timings that are none")
    return Answer(said.labels, _outputs(said.outputs, query, memory), said.confident, timings)


def _check_labels(row: tuple[ScoredLabel, ...], top_k: int | None) -> None:
    if top_k is not None and len(row) > top_k:
        raise UntrueError(f"gave {len(row)} labels where {top_k} were asked for")
    if not all(one.index >= 0 and isfinite(one.score) for one in row):
        raise UntrueError("gave labels without a place or a score")


def _outputs(
    parts: tuple[TensorPart, ...], query: Query, memory: TensorMemory
) -> tuple[OutputTensor, ...]:
    if not parts:
        return ()
    names = {part.name for part in parts}
    if len(names) != len(parts) or len(parts) > _MAX_OUTPUTS:
        raise UntrueError("gave the same output twice, or more than a model has")
    if query.outputs and not names.issubset(query.outputs):
        raise UntrueError("gave outputs that nobody asked for")
    return tuple(_output(part, memory) for part in parts)


def _output(part: TensorPart, memory: TensorMemory) -> OutputTensor:
    item_bytes = _ITEM_BYTES.get(part.dtype)
    if item_bytes is None or len(part.shape) > _MAX_AXES or not 0 < len(part.name) <= _MAX_NAME:
        raise UntrueError("gave an output that no model can have")
    if prod(part.shape) * item_bytes != part.span.size or part.is_json:
        raise UntrueError(
            f"gave {part.span.size} bytes for {part.dtype} of the shape {list(part.shape)}"
        )
    try:
        data = bytes(memory.view(part.span))
    except ValueError as error:
        raise UntrueError("gave an output that lies outside of the shared memory") from error
    return OutputTensor(part.name, part.dtype, part.shape, data)


def _is_duration(value: float) -> bool:
    return isfinite(value) and value >= 0


def _cut(text: str | None) -> str | None:
    return text[:_MAX_TEXT] if text else text
