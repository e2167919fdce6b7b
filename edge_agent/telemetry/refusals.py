"""Requests that ended before a model was asked: at a door, or over what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class Refusals(Collector):
    """Counts refusals; its labels are bounded by the errors that there are."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()

    def count(self, status: int, kind: str) -> None:
        """Counts one.

        Args:
            status: HTTP status of the reply.
            kind: Kind of the error in it.
        """
        self._counts[status, kind] += 1

    def collect(self) -> Iterator[Metric]:
        """Yields what was counted."""
        family = CounterMetricFamily(
            "edge_agent_refusals",
            "Requests that ended in an error before a model was asked.",
            labels=["status", "kind"],
        )
        for (status, kind), count in self._counts.items():
            family.add_metric([str(status), kind], count)
        yield family
