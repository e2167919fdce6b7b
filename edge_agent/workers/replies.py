"""What a worker said, checked: it may have run a stranger's model, and may say anything."""

from __future__ import annotations

from collections.abc import Sequence
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
from edge_agent.workers.answer_form import MAX_OPEN_BYTES, AnswerForm
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


def outcomes(
    ran: Ran, queries: Sequence[Query], form: AnswerForm, memory: TensorMemory
) -> list[Outcome]:
    """Copies the answers to a batch out of the shared memory.

    Args:
        ran: What the worker said.
        queries: What it was asked.
        form: What the model can answer.
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
        failed(one.failure) if isinstance(one, Refused) else _answer(one, query, form, memory)
        for one, query in zip(ran.items, queries, strict=True)
    ]


def _answer(said: Answered, query: Query, form: AnswerForm, memory: TensorMemory) -> Answer:
    rows = _rows(query)
    outputs: tuple[OutputTensor, ...] = ()
    if query.wants == "labels" and form.top_k and (said.labels or rows):
        _check_labels(said, query, form, rows)
    elif said.labels:
        raise UntrueError("gave labels that nobody asked for")
    else:
        outputs = _outputs(said.outputs, query, form, rows, memory)
    if len(said.confident) != len(said.labels):
        raise UntrueError("is confident of other rows than it answered")
    for stage, ms in said.timings_ms.items():
        if stage not in _STAGES or not 0 <= ms <= _MAX_MS:
            raise UntrueError("told timings that are none")
    return Answer(said.labels, outputs, said.confident, said.timings_ms)


def _rows(query: Query) -> int:
    if query.images:
        return len(query.images)
    shape = query.tensors[0].shape if query.tensors else ()
    return shape[0] if shape else 1


def _check_labels(said: Answered, query: Query, form: AnswerForm, rows: int) -> None:
    if said.outputs:
        raise UntrueError("gave outputs beside labels")
    count = len(said.labels)
    if count != rows if form.has_batch_axis else not 0 < count <= form.max_rows:
        raise UntrueError(f"gave {count} rows of labels to {rows} of the query")
    top_k = form.top_k if query.top_k is None else query.top_k
    for row in said.labels:
        _check_row(row, min(top_k, form.classes), form.classes)


def _check_row(row: tuple[ScoredLabel, ...], most: int, classes: int) -> None:
    if not 0 < len(row) <= most:
        raise UntrueError(f"gave {len(row)} labels where {most} were asked for")
    if not all(0 <= one.index < classes and isfinite(one.score) for one in row):
        raise UntrueError("gave labels without a place or a score")


def _outputs(
    parts: tuple[TensorPart, ...], query: Query, form: AnswerForm, rows: int, memory: TensorMemory
) -> tuple[OutputTensor, ...]:
    names = {part.name for part in parts}
    if len(names) != len(parts) or names != (set(query.outputs) or form.names):
        raise UntrueError("gave other outputs than it was asked for")
    open_bytes = 0
    for part in parts:
        wanted = form.outputs.get(part.name)
        if wanted is None or not wanted.fits(part.dtype, part.shape):
            raise UntrueError("gave an output that the model can't have")
        if form.has_batch_axis and part.shape[0] != rows:
            raise UntrueError(f"gave {part.shape[0]} rows to {rows}")
        if prod(part.shape) * wanted.item_bytes != part.span.size or part.is_json:
            raise UntrueError(
                f"gave {part.span.size} bytes for {part.dtype} of the shape {list(part.shape)}"
            )
        if wanted.is_open:  # an empty one may have long axes
            open_bytes += prod([axis or 1 for axis in part.shape]) * wanted.item_bytes
    if open_bytes > MAX_OPEN_BYTES:
        raise UntrueError(f"gave outputs of {open_bytes} bytes, the limit is {MAX_OPEN_BYTES}")
    return tuple([_output(part, memory) for part in parts])


def _output(part: TensorPart, memory: TensorMemory) -> OutputTensor:
    try:
        data = bytes(memory.view(part.span))
    except ValueError as error:
        raise UntrueError("gave an output that lies outside of the shared memory") from error
    return OutputTensor(part.name, part.dtype, part.shape, data)


def _cut(text: str | None) -> str | None:
    return text[:_MAX_TEXT] if text else text
