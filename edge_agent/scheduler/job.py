"""One call in a queue."""

from __future__ import annotations

from msgspec import Struct

from edge_agent.calls import Answer, Priority, Query


class Job(Struct, frozen=True):
    """One call that waits to be run.

    Attributes:
        model: Digest of the bundle.
        query: What is asked.
        tenant: Who asks.
        priority: Class.
        deadline: On the clock of ``time.monotonic``.
    """

    model: str
    query: Query
    tenant: str
    priority: Priority
    deadline: float


class Ran(Struct, frozen=True):
    """How a job was answered.

    Attributes:
        answer: The answer.
        queue_ms: Wall-clock milliseconds that it waited.
        batch_size: Rows that ran together.
    """

    answer: Answer
    queue_ms: float
    batch_size: int
