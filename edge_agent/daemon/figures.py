"""The daemon's rooms as the gauges ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge_agent.telemetry.gauges import CacheFigures, Queue, Workers

if TYPE_CHECKING:
    from edge_agent.cache.cache import ResultCache
    from edge_agent.serving.hosts import Hosts
    from edge_agent.serving.registry import Registry


class Figures:
    """Gathers figures when they are asked for.

    Args:
        registry: The models.
        hosts: Their queues and workers.
        cache: The cache.
    """

    def __init__(self, registry: Registry, hosts: Hosts, cache: ResultCache) -> None:
        self._registry = registry
        self._hosts = hosts
        self._cache_room = cache

    def queues(self) -> Iterator[Queue]:
        """Yields every queue of a loaded model."""
        names = {entry.ref.digest: entry.ref.name for entry in self._registry}
        for host in self._hosts:
            for digest, priority, depth in host.scheduler.waiting():
                if digest in names:
                    yield Queue(names[digest], priority, depth)

    def workers(self) -> Iterator[Workers]:
        """Yields every pool."""
        for host in self._hosts:
            name = "/".join(part for part in (host.kind.engine, host.kind.owner) if part)
            for number, pool in enumerate(host.pools):
                status = pool.status()
                held = tuple(one.held_bytes for one in status.workers)
                yield Workers(f"{name}#{number}" if number else name, held, status.restarts)

    def cache(self) -> CacheFigures | None:
        """Returns the cache's; None where it is switched off."""
        if not self._cache_room.is_on:
            return None
        now = self._cache_room.statistics()
        return CacheFigures(
            is_up=not now.state.startswith("off:"),
            errors=now.errors,
            hits=now.hits,
            misses=now.misses,
            stored=now.puts,
            evicted=now.evictions,
            entries=now.entries,
            bytes=now.size_bytes,
        )
