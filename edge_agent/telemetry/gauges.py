"""How things stand at the moment when Prometheus asks."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from edge_agent import __version__
from edge_profiles import pressure
from edge_profiles.detect import memory_available_bytes, memory_resident_bytes

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from edge_agent.calls import Priority

_PREFIX: Final = "edge_agent_"


class Queue(NamedTuple):
    """One queue.

    Attributes:
        model: Name of a loaded model.
        priority: Class.
        depth: Calls that wait.
    """

    model: str
    priority: Priority
    depth: int


class Workers(NamedTuple):
    """The workers of one pool.

    Attributes:
        pool: Its name: the engine's, with the bundle's where it is for one alone.
        resident_bytes: Memory of each.
        restarts: How often one was replaced, by reason.
    """

    pool: str
    resident_bytes: tuple[int, ...]
    restarts: Mapping[str, int]


class CacheFigures(NamedTuple):
    """The cache, since the daemon's start.

    Attributes:
        is_up: Whether its database is in use.
        errors: Reads and writes that failed, damaged answers, and a database that was made anew.
        hits: Lookups that found an answer.
        misses: Lookups that found none.
        stored: Answers that were stored.
        evicted: Answers that were dropped for others.
        entries: Answers that it holds.
        bytes: Their size.
    """

    is_up: bool
    errors: int
    hits: int
    misses: int
    stored: int
    evicted: int
    entries: int
    bytes: int


class Gauges(Collector):
    """Asks the daemon's rooms.

    Args:
        queues: The queues; several of one model and class (of its versions) are added up.
        workers: The pools.
        cache: The cache; None where there is none.
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
    """

    def __init__(
        self,
        queues: Callable[[], Iterable[Queue]],
        workers: Callable[[], Iterable[Workers]],
        cache: Callable[[], CacheFigures | None],
        root: Path = Path("/"),
    ) -> None:
        self._queues = queues
        self._workers = workers
        self._cache = cache
        self._root = root

    def collect(self) -> Iterator[Metric]:
        """Yields everything, as it is now."""
        yield _build()
        yield _depths(self._queues())
        yield from _pools(list(self._workers()))
        figures = self._cache()
        if figures is not None:
            yield from _cache(figures)
        yield from _memory(self._root)
        yield _pressures(self._root)


def _build() -> Metric:
    family = _gauge("build_info", "1, with the versions.", "version", "python")
    family.add_metric([__version__, platform.python_version()], 1)
    return family


def _depths(queues: Iterable[Queue]) -> Metric:
    depths: dict[tuple[str, Priority], int] = {}
    for model, priority, depth in queues:
        depths[model, priority] = depths.get((model, priority), 0) + depth
    family = _gauge("queue_depth", "Calls that wait.", "model", "priority")
    for (model, priority), depth in depths.items():
        family.add_metric([model, priority.name.lower()], depth)
    return family


def _pools(pools: list[Workers]) -> Iterator[Metric]:
    resident = _gauge("worker_resident_bytes", "Memory of a worker.", "pool", "worker")
    restarts = _counter("worker_restarts", "Workers that were replaced.", "pool", "reason")
    for one in pools:
        for number, held in enumerate(one.resident_bytes):
            resident.add_metric([one.pool, str(number)], held)
        for reason, count in one.restarts.items():
            restarts.add_metric([one.pool, reason], count)
    yield from (resident, restarts)


def _cache(figures: CacheFigures) -> Iterator[Metric]:
    yield _single("cache_up", "Whether the cache's database is in use.", figures.is_up)
    counted = {
        "errors": (figures.errors, "Reads and writes that failed, and what was damaged."),
        "hits": (figures.hits, "Lookups that found an answer."),
        "misses": (figures.misses, "Lookups that found none."),
        "stored": (figures.stored, "Answers that were stored."),
        "evicted": (figures.evicted, "Answers that were dropped for others."),
    }
    for name, (count, text) in counted.items():
        family = _counter(f"cache_{name}", text)
        family.add_metric([], count)
        yield family
    yield _single("cache_entries", "Answers in the cache.", figures.entries)
    yield _single("cache_bytes", "Size of the answers in the cache.", figures.bytes)


def _memory(root: Path) -> Iterator[Metric]:
    resident = memory_resident_bytes(root)
    if resident is not None:
        yield _single("resident_bytes", "Memory of the daemon, without its workers.", resident)
    available = memory_available_bytes(root)
    if available is not None:
        text = "Memory that can be had without swapping."
        yield _single("memory_available_bytes", text, available)


def _pressures(root: Path) -> Metric:
    family = _gauge(
        "pressure_ratio",
        "Share of the last ten seconds in which something, or everything, waited.",
        "scope",
        "resource",
        "waiting",
    )
    for scope, ask in (("machine", pressure.of_machine), ("group", pressure.of_group)):
        for resource in pressure.RESOURCES:
            found = ask(resource, root)
            if found is not None:
                family.add_metric([scope, resource, "some"], found.some / 100)
            if found is not None and found.full is not None:
                family.add_metric([scope, resource, "all"], found.full / 100)
    return family


def _single(name: str, text: str, value: float) -> Metric:
    family = _gauge(name, text)
    family.add_metric([], value)
    return family


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(_PREFIX + name, text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(_PREFIX + name, text, labels=labels)
