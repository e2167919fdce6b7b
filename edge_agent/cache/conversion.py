"""The one-shot command's requests and results, as the calls and answers that the cache knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.calls import Answer, InputTensor, OutputTensor, Query
from edge_agent.types import Result

if TYPE_CHECKING:
    from edge_agent.types import ModelRef, Request, Tensor


def query_of(request: Request) -> Query:
    """Returns what is asked."""
    tensors = tuple(
        InputTensor(name, value.dtype.name, value.shape, _little_endian(value))
        for name, value in sorted(request.tensors.items())
    )
    images = () if request.image is None else (request.image,)
    return Query("labels", tensors, images, request.top_k)


def answer_of(result: Result) -> Answer:
    """Returns what was answered."""
    outputs = tuple(
        OutputTensor(name, value.dtype.name, value.shape, _little_endian(value))
        for name, value in result.outputs.items()
    )
    labels = (result.labels,) if result.labels else ()
    return Answer(labels, outputs, () if result.confident is None else (result.confident,))


def result_of(answer: Answer, model: ModelRef, engine: str, source: str) -> Result:
    """Returns a kept answer as the result of a request."""
    return Result(
        source=source,
        model=model,
        engine=engine,
        labels=answer.labels[0] if answer.labels else (),
        outputs={one.name: _array(one) for one in answer.outputs},
        confident=answer.confident[0] if answer.confident else None,
        timings_ms={},
        is_cached=True,
    )


def _little_endian(value: Tensor) -> bytes:
    return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()


def _array(one: OutputTensor) -> Tensor:
    import numpy as np  # where there are only labels, a hit does without it

    stored = np.frombuffer(one.data, np.dtype(one.dtype).newbyteorder("<"))
    return stored.astype(one.dtype).reshape(one.shape)
