"""Queues between callers and workers: who goes next, who is refused, who gave up."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Container, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from edge_agent.calls import Priority, size_of_inputs
from edge_agent.errors import (
    AgentError,
    EngineFailedError,
    OverloadedError,
    WorkerFailedError,
)
from edge_agent.scheduler import batching, grouping, refusals
from edge_agent.scheduler.admission import Admission, work_ahead_s
from edge_agent.scheduler.alarm import Alarm, CallAt, Clock, Deadlines, loop_timer
from edge_agent.scheduler.entry import Entry
from edge_agent.scheduler.idle_workers import IdleWorkers
from edge_agent.scheduler.job import Job, Ran
from edge_agent.scheduler.limits import ModelQueueSettings, SchedulerLimits
from edge_agent.scheduler.model_queue import ModelQueue, Share
from edge_agent.scheduler.refusals import Full
from edge_agent.workers.work import Batch, Outcome

_NOBODYS_FAULT: Final = (WorkerFailedError, EngineFailedError)


class _Run(Struct):
    """A batch at a worker."""

    model: ModelQueue
    entries: list[Entry]
    rows: int
    started: float
    share: Share
    charged_s: float


class Scheduler:
    """The `WorkSource` of one pool.

    The order: priority class, where a tenant's jobs count as one class more urgent after each
    ``age_s`` in which none of them was run;
    in a class the model that has had the least time of the workers by its weight; of a model the
    tenant that has had the fewest rows by its weight; of a tenant the job that came first.

    Args:
        limits: What holds for all models.
        clock: On which the jobs' deadlines are.
        call_at: The timer; None means the running loop's.
    """

    def __init__(
        self, limits: SchedulerLimits, clock: Clock = time.monotonic, call_at: CallAt | None = None
    ) -> None:
        call_at = call_at or loop_timer(clock)
        self._limits = limits
        self._clock = clock
        self._models: dict[str, ModelQueue] = {}
        self._admission = Admission(limits)
        self._deadlines = Deadlines(clock, call_at, self._expire)
        self._idle = IdleWorkers()
        self._held = Alarm(call_at, self._idle.wake_all)
        self._numbers = itertools.count()
        self._running = 0
        self._turns = batching.Turns()

    def reconfigure(self, limits: SchedulerLimits) -> None:
        """Changes what holds for all models; what waits already stays, however much it is."""
        self._limits = limits
        self._admission.limits = limits
        self.models_changed()

    def add_model(self, digest: str, settings: ModelQueueSettings) -> None:
        """Takes jobs for a model from now on."""
        model = self._models.get(digest)
        if model is None:
            model = self._models[digest] = ModelQueue(digest, settings, self._weight)
        else:
            model.change(settings)
        model.is_removed = False

    def update_model(self, digest: str, settings: ModelQueueSettings) -> None:
        """Changes a model's settings.

        Raises:
            ModelNotReadyError: There is no such model.
        """
        self._ready(digest).change(settings)

    def remove_model(self, digest: str) -> None:
        """Takes no more jobs for a model; those that wait fail with `ModelNotReadyError`."""
        model = self._models.get(digest)
        if model is None:
            return
        model.is_removed = True
        for queue in model.queues:
            for entry in queue.entries():
                self._fail(entry, refusals.removed())
        self._settle(model)

    async def drained(self, digest: str) -> None:
        """Waits until nothing waits and nothing runs of a model, removed or not."""
        model = self._models.get(digest)
        while model is not None and not model.is_settled():
            settled = asyncio.get_running_loop().create_future()
            model.settled.append(settled)
            await settled

    async def submit(self, job: Job) -> Ran:
        """Has a job run; cancelling takes it out of the queue.

        Raises:
            ModelNotReadyError: The model isn't there, or was removed meanwhile.
            OverloadedError: A queue is full, or the tenant's share of it.
            DeadlineExceededError: Its time ran out, or will before it is answered.
            WorkerFailedError: The worker died of it.
            AgentError: What else came out.
        """
        caller: asyncio.Future[Ran] = asyncio.get_running_loop().create_future()
        entry = self._enqueue(job, caller)
        try:
            return await caller
        except asyncio.CancelledError:
            self._give_up(entry)
            raise

    async def next_batch(self, models: Container[str], classes: Container[Priority]) -> Batch:
        """Waits for work; see `WorkSource`."""
        while (batch := self._take(models, classes)) is None:
            await self._idle.wait(models, classes)
        if self._admission.count:
            self._idle.wake_all()
        return batch

    def models_changed(self) -> None:
        """Has every waiting worker look again at what it could do."""
        self._idle.wake_all()

    def waiting(self) -> list[tuple[str, Priority, int]]:
        """Returns every queue: whose it is (a digest), of which class, and how many wait there."""
        models = self._models.values()
        return [(m.digest, one.priority, one.count) for m in models for one in m.queues]

    def runs_only_again(self, digest: str) -> bool:
        """Whether all that runs of a model was in a batch that failed: that was told already."""
        model = self._models.get(digest)
        return model is not None and 0 < model.running == model.running_again

    def _weight(self, tenant: str) -> float:
        return self._limits.tenant(tenant).weight

    def _ready(self, digest: str) -> ModelQueue:
        model = self._models.get(digest)
        if model is None or model.is_removed:
            raise refusals.removed()
        return model

    def _enqueue(self, job: Job, caller: asyncio.Future[Ran]) -> Entry:
        model = self._ready(job.model)
        now = self._clock()
        if job.deadline <= now:
            raise refusals.too_late()
        queue = model.queues[job.priority]
        size = size_of_inputs(job.query)
        self._make_room(job, size, model)
        group = model.group(job.query)
        entry = Entry(
            number=next(self._numbers),
            since=now,
            deadline=job.deadline,
            tenant=job.tenant,
            query=job.query,
            rows=grouping.rows(job.query),
            size=size,
            queue=queue,
            group=group,
            caller=caller,
        )
        if group is not None:
            group.arrived(entry.rows, now)
        self._deadlines.add(entry)
        self._wait(entry)
        return entry

    def _make_room(self, job: Job, size: int, model: ModelQueue) -> None:
        """Refuses a job, or those that have to give way to it."""
        models = self._models.values()
        room = self._admission.room_for(job.tenant, size, model.queues[job.priority], models)
        if isinstance(room, str):
            raise self._overloaded(job.priority, model, room)
        for entry in room:
            queue = entry.queue
            full: Full = "queue_full" if queue.priority > job.priority else "tenant_full"
            self._fail(entry, self._overloaded(queue.priority, queue.model, full))

    def _overloaded(self, priority: Priority, model: ModelQueue, full: Full) -> OverloadedError:
        ahead_s = work_ahead_s(self._models.values(), priority) or model.times.mean_s
        workers = max(1, self._running + len(self._idle))
        return refusals.overloaded(full, ahead_s / workers)

    def _wait(self, entry: Entry, *, at_front: bool = False) -> None:
        """Has a job wait, and a worker look at it."""
        model = entry.queue.model
        model.add(entry, at_front=at_front)
        self._admission.add(entry)
        self._idle.wake_one(model.digest, entry.queue.priority)

    def _expire(self, entry: Entry) -> None:
        self._fail(entry, refusals.too_late())

    def _give_up(self, entry: Entry) -> None:
        """Nobody waits for a job any more: it isn't run, or its outcome not told."""
        self._leave(entry)

    def _fail(self, entry: Entry, error: AgentError) -> None:
        if entry.caller is not None and not entry.caller.done():
            entry.caller.set_exception(error)
        self._leave(entry)

    def _leave(self, entry: Entry) -> None:
        """A job's caller has its answer, or went away."""
        if entry.caller is None:
            return
        if entry.is_waiting:
            entry.queue.model.remove(entry)
            self._admission.remove(entry)
            self._settle(entry.queue.model)
        if entry.group is not None:
            entry.group.left(entry.rows, self._clock())
        entry.release()
        self._deadlines.answered()

    def _take(self, models: Container[str], classes: Container[Priority]) -> Batch | None:
        """Returns what a worker should do now, if anything."""
        now = self._clock()
        self._deadlines.pass_by(now)
        while self._admission.count:
            ordered = batching.candidates(
                self._models.values(),
                models,
                classes,
                self._turns,
                age_s=self._limits.age_s,
                now=now,
            )
            plan = batching.plan(ordered, classes, self._limits, now)
            if plan.chosen is not None:
                return self._start(plan.chosen, plan.members, now)
            if plan.doomed is None:
                self._held.at_latest(plan.ask_again_at)
                return None
            self._expire(plan.doomed)
        return None

    def _start(self, chosen: batching.Candidate, entries: list[Entry], now: float) -> Batch:
        model, share = chosen.queue.model, chosen.share()
        self._turns.served(share, aged=chosen.is_aged())
        for entry in entries:
            model.serve(entry, now, self._limits.age_s)
            self._admission.remove(entry)
        if entries[0].group is not None:
            entries[0].group.formed()
        rows = sum([entry.rows for entry in entries])
        charged_s = model.times.expected_s(rows)
        share.used_s += charged_s / model.settings.weight
        model.running += 1
        model.running_again += entries[0].is_again
        self._running += 1
        return Batch(
            model=model.digest,
            queries=tuple([entry.query for entry in entries]),
            timeout_s=batching.timeout_s(entries, rows, self._limits),
            done=partial(self._done, _Run(model, entries, rows, now, share, charged_s)),
        )

    def _done(self, run: _Run, outcomes: Sequence[Outcome]) -> None:
        """Takes the outcomes of a batch; only the first time that it is told."""
        entries, run.entries = run.entries, []
        if not entries:
            return
        now = self._clock()
        model, ran_s = run.model, now - run.started
        model.running -= 1
        model.running_again -= entries[0].is_again
        self._running -= 1
        run.share.used_s += (ran_s - run.charged_s) / model.settings.weight
        if len(outcomes) != len(entries):
            outcomes = [
                WorkerFailedError(f"the worker gave {len(outcomes)} outcomes for {len(entries)}")
                for _ in entries
            ]
        is_failure = isinstance(outcomes[0], _NOBODYS_FAULT) and all(
            isinstance(one, _NOBODYS_FAULT) for one in outcomes
        )
        if not is_failure:
            model.times.observe(run.rows, ran_s, now)
        if is_failure and len(entries) > 1:
            self._run_alone(entries)
        else:
            for entry, outcome in zip(entries, outcomes, strict=True):
                self._answer(entry, outcome, run)
        self._settle(model)

    def _run_alone(self, entries: list[Entry]) -> None:
        """Has each job of a batch that failed as a whole run by itself: one of them did it."""
        for entry in reversed(entries):
            if not entry.is_open():
                continue
            if entry.queue.model.is_removed:
                self._fail(entry, refusals.removed())
                continue
            if entry.group is not None:
                entry.group.left(entry.rows, self._clock())
                entry.group = None
            entry.is_again = True
            self._wait(entry, at_front=True)

    def _answer(self, entry: Entry, outcome: Outcome, run: _Run) -> None:
        if isinstance(outcome, AgentError):
            self._fail(entry, outcome)
            return
        if entry.caller is not None and not entry.caller.done():
            queue_ms = (run.started - entry.since) * 1000
            entry.caller.set_result(Ran(outcome, queue_ms, run.rows))
        self._leave(entry)

    def _settle(self, model: ModelQueue) -> None:
        """Tells who waits for it that a model has nothing to do any more."""
        if not model.is_settled():
            return
        if model.is_removed and self._models.get(model.digest) is model:
            del self._models[model.digest]
        settled, model.settled = model.settled, []
        for one in settled:
            if not one.done():
                one.set_result(None)
