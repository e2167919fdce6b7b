"""Waiting jobs of one model and class: fair between tenants, first come first for each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from edge_agent.calls import Priority
    from edge_agent.scheduler.arrivals import Arrivals
    from edge_agent.scheduler.entry import Entry
    from edge_agent.scheduler.model_queue import ModelQueue

# Ordered for removal from anywhere in constant time: a dict slows down at its front.
_Line: TypeAlias = "OrderedDict[Entry, None]"


class Lane:
    """Jobs of one tenant.

    Attributes:
        weight: The tenant's.
        finish: Virtual time at which its first job would be done.
        served_until: Up to when it counts as served: it has waited since then at most.
        line: Its jobs, in their order.
        groups: Those that may run with others, by group, in their order.
        size: Bytes of all of them.
    """

    __slots__ = ("finish", "groups", "line", "served_until", "size", "weight")

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.finish = 0.0
        self.served_until = -inf
        self.line: _Line = OrderedDict()
        self.groups: dict[Arrivals, _Line] = {}
        self.size = 0

    def first(self) -> Entry:
        """Returns the job that has waited longest."""
        return next(iter(self.line))

    def since(self) -> float:
        """Returns since when it waits to be served: a long line alone is no wait."""
        return max(self.first().since, self.served_until)

    def newest_first(self) -> Iterator[Entry]:
        """Returns the jobs against their order."""
        return reversed(self.line)

    def add(self, entry: Entry, *, at_front: bool) -> None:
        """Puts a job in line."""
        self.line[entry] = None
        if at_front:
            self.line.move_to_end(entry, last=False)
        self.size += entry.size
        if entry.group is not None:
            line = self.groups.get(entry.group)
            if line is None:
                line = self.groups[entry.group] = OrderedDict()
            line[entry] = None

    def remove(self, entry: Entry) -> None:
        """Takes a job out of line."""
        del self.line[entry]
        self.size -= entry.size
        if entry.group is not None:
            line = self.groups[entry.group]
            del line[entry]
            if not line:
                del self.groups[entry.group]


class ClassQueue:
    """Waiting jobs of one model and class.

    Source: Golestani, "A self-clocked fair queueing scheme for broadband applications", 1994. The
    tenant goes first whose next job would be done first if each progressed by its weight. Virtual
    time is that of the job served last, so nobody who waits is ever passed by a second newcomer
    of the same weight, and an absent tenant saves nothing up.

    Args:
        model: Whose it is.
        priority: Class.
        weight_of: Tells a tenant's weight.
    """

    def __init__(
        self, model: ModelQueue, priority: Priority, weight_of: Callable[[str], float]
    ) -> None:
        self.model = model
        self.priority = priority
        self.lanes: dict[str, Lane] = {}
        self.count = 0
        self.rows = 0
        self._virtual = 0.0
        self._weight_of = weight_of

    def add(self, entry: Entry, *, at_front: bool = False) -> None:
        """Puts a job in its tenant's line, at the front where it has been there before."""
        lane = self.lanes.get(entry.tenant)
        if lane is None:
            lane = self.lanes[entry.tenant] = Lane(self._weight_of(entry.tenant))
            lane.finish = self._virtual + entry.rows / lane.weight
        lane.add(entry, at_front=at_front)
        self.count += 1
        self.rows += entry.rows

    def remove(self, entry: Entry) -> None:
        """Takes out a job that won't be run."""
        lane = self.lanes[entry.tenant]
        lane.remove(entry)
        self.count -= 1
        self.rows -= entry.rows
        if not lane.line:
            del self.lanes[entry.tenant]
        if not self.lanes:
            self._virtual = 0.0

    def serve(self, entry: Entry, now: float, age_s: float) -> None:
        """Takes out a job that is run, at the expense of its tenant.

        Args:
            entry: The job.
            now: The time.
            age_s: So much of what the tenant has waited is made up for, of what counts.
        """
        lane = self.lanes[entry.tenant]
        self._virtual = max(self._virtual, lane.finish)
        self.remove(entry)
        if lane.line:
            lane.finish += lane.first().rows / lane.weight
            most_urgent = now - self.priority * age_s
            since = max(entry.since, lane.served_until, most_urgent)
            lane.served_until = min(now, since + age_s)

    def first(self) -> Entry:
        """Returns the job whose turn it is."""
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values())).first()
        best = min(self.lanes.values(), key=lambda lane: (lane.finish, lane.first().number))
        return best.first()

    def oldest(self) -> Entry:
        """Returns the job that has waited longest."""
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values())).first()
        return min((lane.first() for lane in self.lanes.values()), key=lambda one: one.number)

    def since(self) -> float:
        """Returns since when the tenant waits that has waited longest to be served."""
        if len(self.lanes) == 1:
            return next(iter(self.lanes.values())).since()
        return min([lane.since() for lane in self.lanes.values()])

    def of_group(self, group: Arrivals) -> Iterator[Entry]:
        """Returns the jobs of one group in the order in which they should be served."""
        heads = []
        for lane in self.lanes.values():
            if group in lane.groups:
                line = iter(lane.groups[group])
                entry = next(line)
                heads.append((lane.finish, entry.number, entry, line, lane.weight))
        heapify(heads)
        while heads:
            finish, _, entry, line, weight = heappop(heads)
            yield entry
            following = next(line, None)
            if following is not None:
                then = finish + following.rows / weight
                heappush(heads, (then, following.number, following, line, weight))

    def has_others(self, entry: Entry) -> bool:
        """Whether more jobs wait of a job's tenant."""
        return len(self.lanes[entry.tenant].line) > 1

    def entries(self) -> list[Entry]:
        """Returns all jobs."""
        return [entry for lane in self.lanes.values() for entry in lane.line]
