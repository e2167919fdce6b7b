"""The counters of one version of a model, as plain numbers.

Counting is on the way of each call, so it is a few additions; what Prometheus makes of them is
only computed when somebody asks (`meter`). One thread counts and asks: the event loop's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from edge_agent.calls import Priority, Reply
    from edge_agent.telemetry.reasons import Reason

DURATIONS_S: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
ROWS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_MS: Final = 1e-3


class Histogram:
    """How often values lay where.

    Args:
        bounds: Upper bounds, ascending; each belongs to its bucket.

    Attributes:
        counts: One a bucket, and one of what lies above all bounds.
        sum: Of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Series:
    """What is counted of one version.

    Args:
        engine: Which engine runs it.

    Attributes:
        requests: Answered calls, by class and whether the cache had the answer.
        failures: Calls without an answer, by reason.
        request_s: From arrival to answer, by class.
        queue_s: Waiting, by class; this and what follows only of calls that were run.
        pre_s: Decoding and preparing.
        infer_s: Running.
        post_s: Making the answer.
        batch_rows: Rows that ran together.
        rows: Rows that were answered by running.
        runs: Runs; one of several callers is shared by them.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.requests: Counter[tuple[Priority, bool]] = Counter()
        self.failures: Counter[Reason] = Counter()
        self.request_s: dict[Priority, Histogram] = {}
        self.queue_s: dict[Priority, Histogram] = {}
        self.pre_s = Histogram(DURATIONS_S)
        self.infer_s = Histogram(DURATIONS_S)
        self.post_s = Histogram(DURATIONS_S)
        self.batch_rows = Histogram(ROWS)
        self.rows = 0
        self.runs = 0.0

    def answered(self, reply: Reply, priority: Priority, rows: int, total_s: float) -> None:
        """Counts a call that was answered."""
        self.requests[priority, reply.is_cached] += 1
        _of(self.request_s, priority).observe(total_s)
        if reply.is_cached:
            return
        timings = reply.answer.timings_ms
        batch = max(reply.batch_size, rows, 1)
        for histogram, value in (
            (_of(self.queue_s, priority), reply.queue_ms * _MS),
            (self.pre_s, timings.get("prepare", 0.0) * _MS),
            (self.infer_s, timings.get("infer", 0.0) * _MS),
            (self.post_s, timings.get("answer", 0.0) * _MS),
            (self.batch_rows, batch),
        ):  # `observe`, without five calls of it for each call of a model
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.sum += value
        self.rows += rows
        self.runs += rows / batch


def _of(histograms: dict[Priority, Histogram], priority: Priority) -> Histogram:
    found = histograms.get(priority)
    if found is None:
        found = histograms[priority] = Histogram(DURATIONS_S)
    return found


Labelled: TypeAlias = tuple[tuple[str, str], Series]
"""Model and version, and what was counted of it."""
