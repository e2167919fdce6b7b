"""May one more job wait, and who makes room for it?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import Struct

from edge_agent.calls import Priority
from edge_agent.scheduler.class_queue import ClassQueue, Lane
from edge_agent.scheduler.entry import Entry
from edge_agent.scheduler.limits import SchedulerLimits
from edge_agent.scheduler.model_queue import ModelQueue
from edge_agent.scheduler.refusals import Full


class _Held(Struct):
    """What a tenant's waiting jobs are."""

    count: int = 0
    size: int = 0


class Admission:
    """Counts what waits, in all and by tenant, and decides on more.

    A full queue belongs to its tenants by weight: who has less than a fair share of it gets in at
    the expense of the one furthest above its own, whose newest job is refused after all.
    Otherwise whoever keeps it full would keep everybody else out. The bytes of all queues are
    shared in the same way, and taken from less urgent classes first.

    Attributes:
        limits: What holds from now on.
        count: Jobs that wait.
        size: Their bytes.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.limits = limits
        self._held: dict[str, _Held] = {}
        self.count = 0
        self.size = 0

    def add(self, entry: Entry) -> None:
        """Counts a job that waits now."""
        held = self._held.get(entry.tenant)
        if held is None:
            held = self._held[entry.tenant] = _Held()
        held.count += 1
        held.size += entry.size
        self.count += 1
        self.size += entry.size

    def remove(self, entry: Entry) -> None:
        """Counts a job that doesn't wait any more."""
        held = self._held[entry.tenant]
        held.count -= 1
        held.size -= entry.size
        self.count -= 1
        self.size -= entry.size
        if not held.count:
            del self._held[entry.tenant]

    def room_for(
        self, tenant: str, size: int, queue: ClassQueue, models: Iterable[ModelQueue]
    ) -> list[Entry] | Full:
        """Decides on one more job.

        Args:
            tenant: Whose job.
            size: Its bytes.
            queue: Where it would wait.
            models: All models, to find jobs that hold more than their share.

        Returns:
            The jobs that make room for it (mostly none), or what is full: ``tenant_full`` where
            it is the tenant's own limit or share.
        """
        most = self.limits.tenant(tenant).max_queued
        if most is not None and tenant in self._held and self._held[tenant].count >= most:
            return "tenant_full"
        leaving: list[Entry] = []
        if queue.count >= self.limits.max_queued:
            one = self._place_of(tenant, queue)
            if not isinstance(one, Entry):
                return one
            leaving.append(one)
        # A job that is larger than all the room may wait while nothing else does.
        excess = self.size + size - self.limits.max_queued_bytes if self.size else 0
        if excess <= 0 or self._find_bytes(
            excess, leaving, self._giving_way(tenant, size, queue, models)
        ):
            return leaving
        return "tenant_full" if self._held_size(tenant) > self._share(tenant) else "queue_full"

    def _place_of(self, tenant: str, queue: ClassQueue) -> Entry | Full:
        lane = queue.lanes.get(tenant)
        held = len(lane.line) if lane else 0
        weight = self._weight(tenant)
        others = sum(one.weight for name, one in queue.lanes.items() if name != tenant)
        share = self.limits.max_queued * weight / (weight + others)
        if held + 1 > share:
            return "tenant_full" if held > share else "queue_full"
        largest = max(queue.lanes.values(), key=lambda one: len(one.line) / one.weight)
        return next(largest.newest_first())

    def _find_bytes(
        self, excess: int, leaving: list[Entry], more: Iterable[tuple[Entry, float]]
    ) -> bool:
        """Adds jobs to those that leave until the bytes suffice; False where they don't."""
        excess -= sum(one.size for one in leaving)
        if excess <= 0:
            return True
        taken: dict[str, int] = {}
        for entry, spare in more:
            if taken.get(entry.tenant, 0) < spare and entry not in leaving:
                leaving.append(entry)
                taken[entry.tenant] = taken.get(entry.tenant, 0) + entry.size
                excess -= entry.size
                if excess <= 0:
                    return True
        return False

    def _giving_way(
        self, tenant: str, size: int, queue: ClassQueue, models: Iterable[ModelQueue]
    ) -> Iterator[tuple[Entry, float]]:
        """Returns jobs that go before one is refused, with how many bytes their tenant may lose."""
        is_owed = self._held_size(tenant) + size <= self._share(tenant)
        for name, lane, is_less_urgent in _lanes(queue, models):
            if is_less_urgent:
                spare = math.inf
            elif is_owed and name != tenant:
                spare = self._held_size(name) - self._share(name, tenant)
            else:
                continue
            for entry in lane.newest_first():
                yield entry, spare

    def _share(self, tenant: str, newcomer: str | None = None) -> float:
        """Returns a tenant's fair share of all bytes, beside those who hold any."""
        names = {*self._held, tenant} | ({newcomer} if newcomer is not None else set())
        weights = sum(self._weight(name) for name in names)
        return self.limits.max_queued_bytes * self._weight(tenant) / weights

    def _held_size(self, tenant: str) -> int:
        held = self._held.get(tenant)
        return held.size if held else 0

    def _weight(self, tenant: str) -> float:
        return self.limits.tenant(tenant).weight


def _lanes(queue: ClassQueue, models: Iterable[ModelQueue]) -> Iterator[tuple[str, Lane, bool]]:
    """Returns tenants' jobs that aren't more urgent than a queue's: who should go first, first."""
    queues = [one for model in models for one in model.queues if one.priority >= queue.priority]
    for one in sorted(queues, key=lambda other: -other.priority):
        by_size = sorted(one.lanes.items(), key=lambda item: -item[1].size / item[1].weight)
        for name, lane in by_size:
            yield name, lane, one.priority > queue.priority


def work_ahead_s(models: Iterable[ModelQueue], priority: Priority) -> float:
    """Returns the time of a worker that jobs of a class and of more urgent ones wait for."""
    return sum(
        queue.rows * model.times.row_s()
        for model in models
        for queue in model.queues
        if queue.priority <= priority
    )
