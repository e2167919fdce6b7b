"""What waits for one model, and what it has had of the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from edge_agent.calls import Priority, Query
from edge_agent.scheduler import grouping
from edge_agent.scheduler.arrivals import Arrivals
from edge_agent.scheduler.class_queue import ClassQueue
from edge_agent.scheduler.entry import Entry
from edge_agent.scheduler.grouping import GroupKey
from edge_agent.scheduler.limits import ModelQueueSettings
from edge_agent.scheduler.run_times import RunTimes

_MAX_GROUPS: Final = 64


class Share:
    """What a model has had of the workers for one kind of work.

    Source: Goyal, Vin and Cheng, "Start-time fair queueing", 1997: who comes to wait starts at the
    virtual time of whoever was served last, so that nobody saves up turns.

    Attributes:
        used_s: Virtual time: seconds of a worker by the model's weight.
    """

    def __init__(self) -> None:
        self.used_s = 0.0
        self._is_active = False

    def now(self, is_active: bool, virtual_s: float) -> None:
        """Tells whether work of the kind waits."""
        if is_active and not self._is_active:
            self.used_s = max(self.used_s, virtual_s)
        self._is_active = is_active

    def rest(self) -> None:
        """Nothing waits."""
        self._is_active = False


class ModelQueue:
    """The queues of one model.

    Attributes:
        digest: Which.
        settings: As told.
        queues: One a class, most urgent first.
        times: How long its runs take.
        shares: What it has had of the workers: for jobs as urgent as they came, and for those that
            have grown more urgent.
        waiting: Jobs that wait.
        running: Batches that run.
        running_again: Those among them whose only job was in one that failed.
        is_removed: Whether it only lives on until its last batch is done.
        settled: Those who wait until nothing waits or runs.
    """

    def __init__(
        self, digest: str, settings: ModelQueueSettings, weight_of: Callable[[str], float]
    ) -> None:
        self.digest = digest
        self.settings = settings
        self.queues = tuple(ClassQueue(self, priority, weight_of) for priority in Priority)
        self.times = RunTimes(settings.run_ms / 1000)
        self.shares = (Share(), Share())
        self.waiting = 0
        self.running = 0
        self.running_again = 0
        self.is_removed = False
        self.settled: list[asyncio.Future[None]] = []
        self._groups: dict[GroupKey, Arrivals] = {}

    def change(self, settings: ModelQueueSettings) -> None:
        """Changes the settings; what is expected of runs counts until runs were measured."""
        self.settings = settings
        if not self.times.is_measured():
            self.times = RunTimes(settings.run_ms / 1000)

    def is_settled(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self.waiting and not self.running

    def group(self, query: Query) -> Arrivals | None:
        """Returns whom a query may run with; None where it runs alone."""
        key = grouping.group_key(query) if self.settings.batches else None
        if key is None:
            return None
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= _MAX_GROUPS:
                self._groups = {old: one for old, one in self._groups.items() if one.in_air}
            group = self._groups[key] = Arrivals()
        return group

    def add(self, entry: Entry, *, at_front: bool = False) -> None:
        """Has a job wait."""
        entry.is_waiting = True
        entry.queue.add(entry, at_front=at_front)
        self.waiting += 1

    def remove(self, entry: Entry) -> None:
        """Takes out a job that won't be run."""
        entry.is_waiting = False
        entry.queue.remove(entry)
        self._left()

    def serve(self, entry: Entry, now: float, age_s: float) -> None:
        """Takes out a job that is run; see `ClassQueue.serve`."""
        entry.is_waiting = False
        entry.queue.serve(entry, now, age_s)
        self._left()

    def _left(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            for share in self.shares:
                share.rest()
