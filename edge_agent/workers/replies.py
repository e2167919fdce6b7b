"""What a worker said, checked: it may have run a stranger's model, and may say anything."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Final

from edge_agent.calls import ITEM_BYTES, Answer, OutputTensor, Query
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
from edge_agent.workers.tensor_memory import TensorMemory, written_bytes
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
_STAGES: Final = frozenset({"prepare", "infer", "answer"})
_MAX_OUTPUTS: Final = 64
_MAX_AXES: Final = 8
_MAX_NAME: Final = 256
_MAX_TEXT: Final = 4096
_MAX_MS: Final = 3_600_000.0  # no run may take longer: max_run_ms
_FEW_BYTES: Final = 64 * 1024  # so much is copied whatever was written


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
    if (
        loaded is None
        or not 0 <= loaded.run_ms <= _MAX_MS
        or len(loaded.engine_version) > _MAX_NAME
    ):
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
    sizes = 0
    for one in ran.items:
        if type(one) is Answered:
            sizes += sum([part.span.size for part in one.outputs])
    # Spans may overlap, or lie where nothing was written: copies of those are bounded here.
    if sizes > _FEW_BYTES and sizes > written_bytes(memory.descriptor):
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
    for stage, ms in said.timings_ms.items():
        if stage not in _STAGES or not 0 <= ms <= _MAX_MS:
            raise UntrueError("told timings that are none")
    outputs = _outputs(said.outputs, query, memory)
    return Answer(said.labels, outputs, said.confident, said.timings_ms)


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
    return tuple([_output(part, memory) for part in parts])


def _output(part: TensorPart, memory: TensorMemory) -> OutputTensor:
    item_bytes = ITEM_BYTES.get(part.dtype)
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


def _cut(text: str | None) -> str | None:
    return text[:_MAX_TEXT] if text else text
