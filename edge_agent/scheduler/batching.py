"""Which batch comes next?"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import Final

from msgspec import Struct

from edge_agent.calls import Priority
from edge_agent.scheduler.class_queue import ClassQueue
from edge_agent.scheduler.entry import Entry
from edge_agent.scheduler.limits import SchedulerLimits
from edge_agent.scheduler.model_queue import ModelQueue, Share

_NOT_AT_ALL: Final = -math.inf
_LEAST_RUN_S: Final = 1.0
_TIMES_THE_SLOWEST: Final = 20


class Turns:
    """Whose turn it is between the two kinds of work, and between models for each.

    Of jobs that are equally urgent by now, some came so and some have grown so: they take turns,
    for an old crowd must not hold up what is urgent by its nature, nor a stream of that the old.
    Each kind has its own account of what the models have had. With a common one, a model whose
    urgent jobs take every turn of theirs would never be due for one of its old jobs.

    Attributes:
        aged: Whether it is the turn of jobs that have grown more urgent.
        virtual_s: Virtual time of either kind: what the model had had that was served last.
    """

    def __init__(self) -> None:
        self.aged = True
        self.virtual_s = [0.0, 0.0]

    def served(self, share: Share, *, aged: bool) -> None:
        """A model had its turn."""
        self.aged = not aged
        self.virtual_s[aged] = max(self.virtual_s[aged], share.used_s)


class Candidate(Struct):
    """A queue whose turn it may be.

    Attributes:
        level: Its class, by now: more urgent by one after each ``age_s`` in which a tenant of it
            was not served.
        is_out_of_turn: Whether it is the turn of the other kind of work.
        number: Of its oldest job.
        queue: Which.
    """

    level: int
    is_out_of_turn: bool
    number: int
    queue: ClassQueue

    def rank(self) -> tuple[int, bool, float, int]:
        """Returns by what candidates are ordered."""
        return self.level, self.is_out_of_turn, self.share().used_s, self.number

    def is_aged(self) -> bool:
        """Whether it has grown more urgent."""
        return self.level < self.queue.priority

    def share(self) -> Share:
        """Returns the account that it runs on."""
        return self.queue.model.shares[self.is_aged()]


class Plan(Struct):
    """What a worker should do.

    Attributes:
        chosen: Whose turn it is; None where the worker should wait.
        members: Jobs that run together now.
        doomed: A job that nobody waits for any more, or that can't be answered in time: drop it
            and ask again.
        ask_again_at: When to ask again at the latest.
    """

    chosen: Candidate | None = None
    members: list[Entry] = []
    doomed: Entry | None = None
    ask_again_at: float = math.inf


def candidates(
    models: Iterable[ModelQueue],
    known: Container[str],
    classes: Container[Priority],
    turns: Turns,
    *,
    age_s: float,
    now: float,
) -> list[Candidate]:
    """Returns the queues that a worker could serve, best first.

    Args:
        models: All models.
        known: Digests of those that the worker has loaded.
        classes: Classes that it serves.
        turns: Whose turn it is.
        age_s: How long it takes to become one class more urgent.
        now: The time.
    """
    found = []
    for model in models:
        if not model.waiting or model.digest not in known:
            continue
        kinds = [False, False]
        for queue in model.queues:
            if queue.count and queue.priority in classes:
                level = max(0, queue.priority - int((now - queue.since()) / age_s))
                is_aged = level < queue.priority
                kinds[is_aged] = True
                number = queue.oldest().number
                found.append(Candidate(level, is_aged is not turns.aged, number, queue))
        native, aged = model.shares
        native.now(kinds[0], turns.virtual_s[0])
        aged.now(kinds[1], turns.virtual_s[1])
    if len(found) > 1:
        found.sort(key=Candidate.rank)
    return found


def plan(
    ordered: Iterable[Candidate],
    classes: Container[Priority],
    limits: SchedulerLimits,
    now: float,
) -> Plan:
    """Chooses a batch.

    A batch that could be fuller may wait for more rows while the worker has nothing to do, or
    does other work of the same level. It doesn't wait while the worker would do what is less
    urgent.
    """
    held: Plan | None = None
    ask_again_at = math.inf
    for one in ordered:
        leader = one.queue.first()
        if _is_doomed(leader, now):
            return Plan(doomed=leader)
        members, is_full = _members(leader, classes, limits, now)
        until = _NOT_AT_ALL if is_full else _wait_until(members, limits, now)
        if until <= now:
            if held is not None and held.chosen is not None and one.level > held.chosen.level:
                return held
            return Plan(one, members)
        if held is None:
            held = Plan(one, members)
        ask_again_at = min(ask_again_at, until)
    return Plan(ask_again_at=ask_again_at)


def _is_doomed(entry: Entry, now: float) -> bool:
    """Whether a job would be late for certain; where its tenant has more that wait, most likely.

    In an overload each run that ends late would make the next one late as well. A tenant's last
    one is tried, so that a model that has become faster is noticed.
    """
    if not entry.is_open():
        return True
    model, left_s = entry.queue.model, entry.deadline - now
    times = model.times
    if left_s >= times.mean_s or model.settings.sizes_vary:
        return False
    if entry.queue.has_others(entry):  # a mean alone may be that of few runs that took very long
        return left_s < min(times.expected_s(entry.rows), times.usual_s(now))
    return left_s < times.fastest_s(now)


def timeout_s(entries: Sequence[Entry], rows: int, limits: SchedulerLimits) -> float:
    """Returns after which time a run counts as hung.

    Not the callers' deadlines: each caller is answered at its own, whatever the worker does,
    while a worker killed over one tight deadline costs everybody else a restart. What was
    measured tells a hang much sooner than ``max_run_s``; but not where inputs vary in size, nor
    for images, since how long one takes to decode shows only in its pixels, which nobody has
    looked at here.
    """
    model = entries[0].queue.model
    slowest_s = model.times.slowest_s(rows)
    if not slowest_s or model.settings.sizes_vary or entries[0].query.images:
        return limits.max_run_s
    return min(limits.max_run_s, max(_LEAST_RUN_S, _TIMES_THE_SLOWEST * slowest_s))


def _max_rows(model: ModelQueue, limits: SchedulerLimits) -> int:
    return model.settings.max_batch or limits.max_batch


def _members(
    leader: Entry, classes: Container[Priority], limits: SchedulerLimits, now: float
) -> tuple[list[Entry], bool]:
    """Returns who runs with a job, and whether there is no room for more.

    The job's own class goes first, then the others, most urgent first. More rows make the run
    longer: none is added by which anybody's deadline would be missed.
    """
    model = leader.queue.model
    members = [leader]
    if leader.group is None or not model.settings.batches:
        return members, True
    rows, most, tightest = leader.rows, _max_rows(model, limits), leader.deadline
    if model.waiting == 1:
        return members, rows >= most
    own = leader.queue
    for queue in (own, *(other for other in model.queues if other is not own)):
        if not queue.count or queue.priority not in classes:
            continue
        for entry in queue.of_group(leader.group):
            if entry is leader or not entry.is_open():
                continue
            rows += entry.rows
            tightest = min(tightest, entry.deadline)
            if rows > most or now + model.times.expected_s(rows) > tightest:
                return members, True
            members.append(entry)
    return members, rows >= most


def _wait_until(members: list[Entry], limits: SchedulerLimits, now: float) -> float:
    """Returns until when more rows are worth waiting for."""
    leader = members[0]
    if leader.group is None:
        return _NOT_AT_ALL
    times = leader.queue.model.times
    wanted = leader.group.wait_until(times.saved_s(), limits.max_batch_wait_s, now)
    if wanted <= now:
        return _NOT_AT_ALL
    rows = sum(one.rows for one in members)
    return min(wanted, min(one.deadline for one in members) - times.expected_s(rows + 1))
