"""The same counters under the names that Triton gives them, for dashboards that know those.

Source: Triton Inference Server, docs/user_guide/metrics.md. Its names lack the ending ``_total``
that counters have by Prometheus' rules, so their type is given as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import Metric

if TYPE_CHECKING:
    from edge_agent.telemetry.series import Labelled, Series

_US: Final = 1e6


def counters(rows: Sequence[Labelled]) -> Iterator[Metric]:
    """Yields Triton's counters; durations are of answered calls, in microseconds."""
    for name, (text, value) in _COUNTERS.items():
        family = Metric(f"nv_inference_{name}", text, "unknown")
        for (model, version), series in rows:
            labels = {"model": model, "version": version}
            family.add_sample(family.name, labels, value(series))
        yield family


def _request_us(series: Series) -> float:
    return sum(one.sum for one in series.request_s.values()) * _US


def _queue_us(series: Series) -> float:
    return sum(one.sum for one in series.queue_s.values()) * _US


_COUNTERS: Final[dict[str, tuple[str, Callable[[Series], float]]]] = {
    "request_success": ("Answered calls.", lambda series: series.requests.total()),
    "request_failure": ("Calls without an answer.", lambda series: series.failures.total()),
    "count": ("Rows that were answered by running.", lambda series: series.rows),
    "exec_count": ("Runs.", lambda series: round(series.runs)),
    "request_duration_us": ("From arrival to answer.", _request_us),
    "queue_duration_us": ("Waiting for a worker.", _queue_us),
    "compute_input_duration_us": ("Preparing.", lambda series: series.pre_s.sum * _US),
    "compute_infer_duration_us": ("Running.", lambda series: series.infer_s.sum * _US),
    "compute_output_duration_us": ("Answering.", lambda series: series.post_s.sum * _US),
}
