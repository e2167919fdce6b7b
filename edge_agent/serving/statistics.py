"""Counters of one loaded version."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING

from edge_agent.serving.service import Duration, ModelStatistics

if TYPE_CHECKING:
    from edge_agent.calls import Reply
    from edge_agent.types import ModelRef


def fresh(ref: ModelRef) -> ModelStatistics:
    """Returns counters that stand at zero."""
    success, fail, queue, prepare, infer, answer, hit, miss = (Duration() for _ in range(8))
    return ModelStatistics(ref, 0, 0, 0, success, fail, queue, prepare, infer, answer, hit, miss)


def count(statistics: ModelStatistics, reply: Reply, rows: int, total_s: float) -> None:
    """Counts a call that was answered.

    Args:
        statistics: Where.
        reply: The reply.
        rows: Rows of the call itself.
        total_s: From arrival to answer, in seconds.
    """
    statistics.last_inference_ms = int(time() * 1e3)
    _add(statistics.success, total_s * 1e3)
    if reply.is_cached:
        _add(statistics.cache_hit, total_s * 1e3)
        return
    timings = reply.answer.timings_ms
    statistics.inference_count += rows
    # A run of several callers is counted by the share of each: whole numbers where it is one's own.
    statistics.execution_share += rows / max(reply.batch_size, rows, 1)
    statistics.execution_count = round(statistics.execution_share)
    for duration, ms in (
        (statistics.queue, reply.queue_ms),
        (statistics.compute_input, timings.get("prepare", 0.0)),
        (statistics.compute_infer, timings.get("infer", 0.0)),
        (statistics.compute_output, timings.get("answer", 0.0)),
    ):  # `_add`, without four calls of it for each call of a model
        duration.count += 1
        duration.ns += int(ms * 1e6)


def count_failure(statistics: ModelStatistics, total_s: float) -> None:
    """Counts a call that failed."""
    _add(statistics.fail, total_s * 1e3)


def count_miss(statistics: ModelStatistics, took_s: float) -> None:
    """Counts a lookup in the cache that found nothing."""
    _add(statistics.cache_miss, took_s * 1e3)


def _add(duration: Duration, ms: float) -> None:
    duration.count += 1
    duration.ns += int(ms * 1e6)
