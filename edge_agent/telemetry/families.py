"""What was counted, as families of Prometheus metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from edge_agent.telemetry.reasons import REJECTIONS

if TYPE_CHECKING:
    from edge_agent.calls import Priority
    from edge_agent.telemetry.series import Histogram, Labelled

_MODEL: Final = ("model", "version")


def loaded(rows: Sequence[Labelled]) -> Metric:
    """Returns which versions are loaded."""
    family = GaugeMetricFamily(
        "edge_agent_model_loaded", "1 for each loaded version.", labels=[*_MODEL, "engine"]
    )
    for names, series in rows:
        family.add_metric([*names, series.engine], 1)
    return family


def calls(rows: Sequence[Labelled]) -> Iterator[Metric]:
    """Yields how many calls were answered, failed, or were rejected."""
    answered = CounterMetricFamily(
        "edge_agent_requests",
        "Calls that were answered.",
        labels=[*_MODEL, "engine", "priority", "cached"],
    )
    failed = CounterMetricFamily(
        "edge_agent_failures", "Calls that failed.", labels=[*_MODEL, "reason"]
    )
    rejected = CounterMetricFamily(
        "edge_agent_rejections", "Calls that were not taken.", labels=[*_MODEL, "reason"]
    )
    for names, series in rows:
        for (priority, is_cached), count in series.requests.items():
            cached = "true" if is_cached else "false"
            answered.add_metric([*names, series.engine, _word(priority), cached], count)
        for reason, count in series.failures.items():
            family = rejected if reason in REJECTIONS else failed
            family.add_metric([*names, reason], count)
    yield from (answered, failed, rejected)


def histograms(rows: Sequence[Labelled]) -> Iterator[Metric]:
    """Yields how long the stages took, and how many rows ran together."""
    by_class = [*_MODEL, "priority"]
    request = _family("request_seconds", "From arrival to answer.", by_class)
    queue = _family("queue_seconds", "Waiting for a worker.", by_class)
    pre = _family("pre_seconds", "Decoding and preparing.", _MODEL)
    infer = _family("infer_seconds", "Running the model.", _MODEL)
    post = _family("post_seconds", "Making the answer.", _MODEL)
    batch = _family("batch_rows", "Rows that ran together.", _MODEL)
    for names, series in rows:
        _add_by_class(request, names, series.request_s)
        _add_by_class(queue, names, series.queue_s)
        _add(pre, names, series.pre_s)
        _add(infer, names, series.infer_s)
        _add(post, names, series.post_s)
        _add(batch, names, series.batch_rows)
    yield from (request, queue, pre, infer, post, batch)


def _family(name: str, text: str, labels: Sequence[str]) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"edge_agent_{name}", text, labels=labels)


def _add_by_class(
    family: HistogramMetricFamily, names: Sequence[str], found: Mapping[Priority, Histogram]
) -> None:
    for priority, histogram in found.items():
        _add(family, [*names, _word(priority)], histogram)


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    buckets = list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))
    family.add_metric(labels, buckets, histogram.sum)


def _word(priority: Priority) -> str:
    return priority.name.lower()
