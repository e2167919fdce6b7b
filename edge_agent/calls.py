"""What the daemon's rooms hand each other: a call with its query, and the reply to it.

The daemon holds no array: a tensor is its dtype, its shape and its bytes. Only worker processes
make NumPy arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, Literal

from msgspec import Struct

from edge_agent.types import ModelRef, ScoredLabel

Wants = Literal["labels", "outputs"]
# Bytes an element, by NumPy's name of its type.
ITEM_BYTES: Final[Mapping[str, int]] = {
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}


class Priority(IntEnum):
    """Classes of urgency; a smaller number goes first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    BULK = 3


class InputTensor(Struct, frozen=True):
    """One input, not parsed yet.

    Attributes:
        name: By model.yaml.
        dtype: NumPy's name of the element type.
        shape: Axis lengths, the batch axis included.
        data: Little-endian values in row-major order, bool as one byte; or, with ``is_json``, the
            text of a flat or nested JSON array of numbers or truth values.
        is_json: Which of the two.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview
    is_json: bool = False


class Query(Struct, frozen=True):
    """What is asked of a model.

    Attributes:
        wants: ``labels`` (ranked classes; for a raw model the outputs) or ``outputs``.
        tensors: Inputs.
        images: Image files; each feeds one row of the input that model.yaml's preprocess names.
        top_k: How many classes; None means as the bundle says.
        outputs: Names of the outputs that are wanted; empty means all.
    """

    wants: Wants
    tensors: tuple[InputTensor, ...] = ()
    images: tuple[bytes | bytearray | memoryview, ...] = ()
    top_k: int | None = None
    outputs: tuple[str, ...] = ()


def size_of_inputs(query: Query) -> int:
    """Returns the size of all values and images, in bytes."""
    total = 0
    for tensor in query.tensors:
        total += _bytes(tensor.data)
    for image in query.images:
        total += _bytes(image)
    return total


def _bytes(data: bytes | bytearray | memoryview) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)


class OutputTensor(Struct, frozen=True):
    """One output.

    Attributes:
        name: By model.yaml.
        dtype: NumPy's name of the element type.
        shape: Axis lengths, the batch axis included.
        data: Little-endian values in row-major order.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Answer(Struct, frozen=True):
    """What a model answered to one query.

    Attributes:
        labels: The best classes of each row, best first; empty where outputs were wanted.
        outputs: The outputs that were wanted; empty where labels are given.
        confident: For each row of labels, False where its best score is below the contract's
            min_confidence.
        timings_ms: Wall-clock milliseconds of ``prepare``, ``infer`` and ``answer``.
    """

    labels: tuple[tuple[ScoredLabel, ...], ...] = ()
    outputs: tuple[OutputTensor, ...] = ()
    confident: tuple[bool, ...] = ()
    timings_ms: Mapping[str, float] = {}


class Call(Struct, frozen=True):
    """One request to the daemon.

    Attributes:
        model: Name or alias.
        version: Semantic version; None means the live one.
        query: What is asked.
        tenant: Who asks, from the peer's credentials: ``uid:1000``, ``token:camera``, ``cert:…``.
        priority: Class.
        deadline: When the answer is of no use any more, on the clock of ``time.monotonic``; None
            means as the contract or the configuration says.
        idempotency_key: A call with a key that this tenant has used for this model lately gets
            the same reply, and is not executed again.
        request_id: For logs.
        on_queued: Called when a queue takes the query, and counts its bytes from then on: whoever
            counted them before needn't any more.
    """

    model: str
    query: Query
    tenant: str
    version: str | None = None
    priority: Priority = Priority.NORMAL
    deadline: float | None = None
    idempotency_key: str | None = None
    request_id: str = ""
    on_queued: Callable[[], None] | None = None


class Reply(Struct, frozen=True):
    """The reply to one call.

    Attributes:
        answer: What the model answered.
        model: Exactly which model.
        engine: ``onnx`` or ``tflite``.
        is_cached: Whether it comes from the cache, or from another caller's identical call.
        queue_ms: Wall-clock milliseconds until it was run; 0 where it was not.
        batch_size: How many rows ran together with it, its own included; 0 where it was not run.
    """

    answer: Answer
    model: ModelRef
    engine: str
    is_cached: bool = False
    queue_ms: float = 0.0
    batch_size: int = 0
