"""What Prometheus is told: the meter that counts calls, and everything as text.

Labels are bounded: models only while they are loaded (all others count under the empty name),
classes, reasons, engines. A model's series end when it is unloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from edge_agent.telemetry import families, triton
from edge_agent.telemetry.reasons import reason_of
from edge_agent.telemetry.series import Series

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from edge_agent.calls import Priority, Reply

# Our names are plain ASCII: this oldest version has all that they need, and all readers know it.
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Meter(Collector):
    """Counts calls; asked by one `CollectorRegistry`."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self._others = Series("")

    def remember(self, model: str, version: str, engine: str) -> None:
        """Begins the series of a version that was loaded."""
        self._series[model, version] = Series(engine)

    def forget(self, model: str, version: str) -> None:
        """Ends the series of a version that was unloaded."""
        self._series.pop((model, version), None)

    def answered(self, reply: Reply, priority: Priority, rows: int, total_s: float) -> None:
        """Counts a call that was answered.

        Args:
            reply: The reply.
            priority: Class of the call.
            rows: Rows of the call itself.
            total_s: From arrival to answer, in seconds.
        """
        self._of(reply.model.name, reply.model.version).answered(reply, priority, rows, total_s)

    def failed(self, model: str, version: str, error: BaseException) -> None:
        """Counts a call that was rejected, or failed.

        Args:
            model: Name of the model; any, where there is none.
            version: Its version; any, where it isn't known.
            error: Why.
        """
        self._of(model, version).failures[reason_of(error)] += 1

    def _of(self, model: str, version: str) -> Series:
        return self._series.get((model, version), self._others)

    def collect(self) -> Iterator[Metric]:
        """Yields everything that was counted."""
        loaded = list(self._series.items())
        everything = [*loaded, (("", ""), self._others)]
        yield families.loaded(loaded)
        yield from families.calls(everything)
        yield from families.histograms(loaded)
        yield from triton.counters(loaded)


def registry(*collectors: Collector) -> CollectorRegistry:
    """Returns a registry of its own: nothing of other packages gets in."""
    made = CollectorRegistry(auto_describe=False)
    for one in collectors:
        made.register(one)
    return made


def render(asked: CollectorRegistry) -> bytes:
    """Returns everything as text, in the form of `CONTENT_TYPE`."""
    return generate_latest(asked)
