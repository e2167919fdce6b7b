"""Answers the queries of one batch: each gets exactly its rows, and what fails, fails alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct

from edge_agent import tensors
from edge_agent.errors import AgentError, BadInputError, EngineFailedError
from edge_agent.types import dtype_name
from edge_agent.workers.answer_form import MAX_OPEN_BYTES
from edge_agent.workers.child import faults
from edge_agent.workers.child.model import joined, part, rows
from edge_agent.workers.protocol import Answered, Failure, Item, Refused, Span, TensorPart

if TYPE_CHECKING:
    from edge_agent.types import Tensor
    from edge_agent.workers.child.model import Model, Tensors
    from edge_agent.workers.tensor_memory import TensorMemory

_SOURCE = "the request"
_T = TypeVar("_T")


class _Prepared(Struct):
    """One query, ready to run.

    Attributes:
        place: Which of the batch.
        item: What is asked.
        inputs: For the engine.
        wanted: Names of the outputs.
        prepare_ms: How long it took, in milliseconds.
    """

    place: int
    item: Item
    inputs: Tensors
    wanted: Sequence[str]
    prepare_ms: float


def run(
    model: Model, items: Sequence[Item], memory: TensorMemory
) -> tuple[Answered | Refused, ...]:
    """Answers a batch.

    Args:
        model: The model.
        items: Queries, whose inputs lie in the memory. Outputs are put behind them.
        memory: The memory.

    Returns:
        One outcome a query, in their order.
    """
    used = max((span.offset + span.size for one in items for span in _spans(one)), default=0)
    memory.reset(used)
    outcomes: dict[int, Answered | Refused] = {}
    ready: list[_Prepared] = []
    for place, item in enumerate(items):
        one = _tried(partial(_prepare, model, place, item, memory))
        if isinstance(one, Refused):
            outcomes[place] = one
        else:
            ready.append(one)
    for group in _groups(model, ready):
        outcomes |= _run(model, group, memory)
    return tuple(outcomes[place] for place in range(len(items)))


def failure(error: Exception) -> Failure:
    """Makes a message of anything that was raised; a fault of ours goes to the log as well."""
    if isinstance(error, MemoryError):
        error = EngineFailedError("not enough memory")
    if not isinstance(error, AgentError):
        faults.tell(error)
        error = EngineFailedError(f"a fault in the worker: {type(error).__name__}")
    # What isn't UTF-8, such as a name in a damaged file, can't be sent.
    message = error.message.encode("utf-8", "replace").decode()
    return Failure(type(error).__name__, message, error.path, error.hint)


def _tried(work: Callable[[], _T]) -> _T | Refused:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - one query's fault is not the others'
        return Refused(failure(error))


def _spans(item: Item) -> list[Span]:
    return [*(one.span for one in item.tensors), *item.images]


def _prepare(model: Model, place: int, item: Item, memory: TensorMemory) -> _Prepared:
    started = perf_counter()
    pipeline = model.pipeline
    wanted = _wanted(item, [spec.name for spec in pipeline.description.outputs])
    values: dict[str, Tensor] = {}
    for one in item.tensors:
        if one.name in values:
            raise BadInputError(f"the input {one.name!r} is given twice", path=_SOURCE)
        spec = pipeline.input(one.name, _SOURCE)
        tensors.check_form(one.dtype, one.shape, spec, _SOURCE)
        data = memory.view(one.span)
        if one.is_json:
            values[one.name] = tensors.from_json(bytes(data), one.shape, spec, _SOURCE)
        else:
            values[one.name] = tensors.from_bytes(data, one.shape, spec, _SOURCE)
    images = [bytes(memory.view(span)) for span in item.images]
    inputs = pipeline.prepare_rows(images, values, item.top_k, model.layout, _SOURCE)
    return _Prepared(place, item, inputs, wanted, (perf_counter() - started) * 1e3)


def _wanted(item: Item, known: list[str]) -> list[str]:
    """Returns the names of the outputs, each once."""
    for name in item.outputs:
        if name not in known:
            raise BadInputError(
                f"the model has no output {name!r}; it has {', '.join(known)}", path=_SOURCE
            )
    return list(dict.fromkeys(item.outputs)) or known


def _groups(model: Model, ready: list[_Prepared]) -> list[list[_Prepared]]:
    """Puts together what differs in nothing but its rows."""
    if not model.batches or len(ready) < 2:
        return [[one] for one in ready]
    groups: dict[object, list[_Prepared]] = {}
    for one in ready:
        shapes = tuple((name, one.inputs[name].shape[1:]) for name in sorted(one.inputs))
        groups.setdefault(shapes, []).append(one)
    return list(groups.values())


def _run(
    model: Model, group: list[_Prepared], memory: TensorMemory
) -> dict[int, Answered | Refused]:
    """Runs queries together, and each alone where that fails."""
    started = perf_counter()
    is_alone = len(group) == 1
    outputs = _tried(
        lambda: model.run(group[0].inputs if is_alone else joined([one.inputs for one in group]))
    )
    infer_ms = (perf_counter() - started) * 1e3
    if isinstance(outputs, Refused):
        if is_alone:
            return {group[0].place: outputs}
        alone = [_run(model, [one], memory) for one in group]
        return {place: outcome for each in alone for place, outcome in each.items()}
    answers: dict[int, Answered | Refused] = {}
    start = 0
    for one in group:
        end = start + (0 if is_alone else rows(one.inputs))
        own = outputs if is_alone else part(outputs, start, end)
        answers[one.place] = _tried(partial(_answer, model, one, own, infer_ms, memory))
        start = end
    return answers


def _answer(
    model: Model, one: _Prepared, outputs: Tensors, infer_ms: float, memory: TensorMemory
) -> Answered:
    started = perf_counter()
    labels = model.pipeline.answers(outputs, one.item.top_k) if one.item.wants == "labels" else ()
    parts = () if labels else _put_all(model, one.wanted, outputs, memory)
    floor = model.pipeline.description.contract.min_confidence
    return Answered(
        labels,
        parts,
        tuple(floor is None or row[0].score >= floor for row in labels),
        {
            "prepare": one.prepare_ms,
            "infer": infer_ms,
            "answer": (perf_counter() - started) * 1e3,
        },
    )


def _put_all(
    model: Model, wanted: Sequence[str], outputs: Tensors, memory: TensorMemory
) -> tuple[TensorPart, ...]:
    open_bytes = sum([outputs[name].nbytes for name in wanted if model.form.outputs[name].is_open])
    if open_bytes > MAX_OPEN_BYTES:
        raise BadInputError(
            f"its outputs take {open_bytes} bytes, the limit is {MAX_OPEN_BYTES}",
            path=_SOURCE,
            hint="ask for less at a time",
        )
    return tuple([_put(name, outputs[name], memory) for name in wanted])


def _put(name: str, value: Tensor, memory: TensorMemory) -> TensorPart:
    whole = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    span, place = memory.reserve(whole.nbytes)
    place[:] = whole.reshape(-1).view(np.uint8).data
    return TensorPart(name, dtype_name(value.dtype), value.shape, span)
