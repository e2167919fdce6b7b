"""What the scheduler tells of itself, for metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from edge_agent.calls import Priority
from edge_agent.scheduler.model_queue import ModelQueue


class QueueState(Struct, frozen=True):
    """One queue.

    Attributes:
        model: Digest of the bundle.
        priority: Class.
        depth: Jobs that wait.
        bytes: Bytes of their queries.
        oldest_wait_s: How long the first of them has waited, in seconds.
    """

    model: str
    priority: Priority
    depth: int
    bytes: int
    oldest_wait_s: float


class ModelState(Struct, frozen=True):
    """One model.

    Attributes:
        model: Digest of the bundle.
        running: Batches that run.
        run_ms: Moving average of a run, in milliseconds; the estimate before the first.
        run_p95_ms: 95th percentile of the latest runs; 0 before the first.
    """

    model: str
    running: int
    run_ms: float
    run_p95_ms: float


class Snapshot(Struct, frozen=True):
    """All of it.

    Attributes:
        queues: Every model's, every class's.
        models: Every model.
        queued_bytes: Bytes of all waiting queries.
        refused: Jobs that weren't answered, by reason: ``queue_full``, ``tenant_full``,
            ``deadline_expired``, ``cancelled``, ``model_removed``.
    """

    queues: tuple[QueueState, ...]
    models: tuple[ModelState, ...]
    queued_bytes: int
    refused: Mapping[str, int]


def states(
    models: Collection[ModelQueue], now: float
) -> tuple[tuple[QueueState, ...], tuple[ModelState, ...]]:
    """Returns the state of every queue, and of every model."""
    queues = tuple(
        QueueState(
            model=model.digest,
            priority=queue.priority,
            depth=queue.count,
            bytes=queue.size,
            oldest_wait_s=now - queue.oldest().since if queue.count else 0.0,
        )
        for model in models
        for queue in model.queues
    )
    return queues, tuple(
        ModelState(
            model=model.digest,
            running=model.running,
            run_ms=model.times.mean_s * 1000,
            run_p95_ms=model.times.p95_s() * 1000,
        )
        for model in models
    )
