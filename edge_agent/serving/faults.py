"""What becomes of a model that breaks its workers: workers of its own, then a pause."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.placement import Placement
    from edge_agent.serving.registry import Registry
    from edge_agent.serving.tasks import Tasks

WINDOW_S: Final = 60.0
SHARED_FAULTS: Final = 2
OWN_FAULTS: Final = 5


class Faults:
    """Counts what models do to workers, and acts on it; implements `workers.pool.PoolEvents`.

    Twice in a minute on shared workers: the model gets workers of its own, and hurts nobody else
    any more. Five times in a minute there: it is taken out of service for a while.
    Whose inputs do it isn't asked: one caller's may take a model from all.

    Args:
        registry: Who answers.
        life_cycle: What takes versions out of service.
        placement: Where they run.
        tasks: Where that happens.
        log: Told what happened: an event, and its facts.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        placement: Placement,
        tasks: Tasks,
        log: Callable[..., None],
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._placement = placement
        self._tasks = tasks
        self._log = log
        self._times: defaultdict[str, deque[float]] = defaultdict(deque)

    def on_worker_failed(self, digest: str | None, reason: str) -> None:
        """A worker was lost while it ran a model, or none."""
        entry = self._registry.loaded(digest) if digest else None
        name = entry.ref.name if entry else None
        self._log("worker_failed", model=name, reason=reason)
        if entry is None or entry.state != "READY" or entry.host is None:
            return
        if entry.host.scheduler.runs_only_again(entry.ref.digest):
            return  # the batch that it was in has been counted
        faults = self._count(entry.ref.name)
        if entry.host.kind.owner is None:
            if faults >= SHARED_FAULTS:
                self._isolate(entry)
        elif faults >= OWN_FAULTS:
            self._times.pop(entry.ref.name, None)
            told = f"its worker failed {faults} times in {WINDOW_S:.0f} s, last: {reason}"
            self._tasks.create_task(self._life_cycle.fail(entry, told))

    def on_model_lost(self, digest: str, error: Exception) -> None:
        """A model could not be loaded into a new worker, or answers its golden input wrongly."""
        entry = self._registry.loaded(digest)
        if entry is not None:
            self._log("model_lost", model=entry.ref.name, reason=str(error))
            self._tasks.create_task(self._life_cycle.fail(entry, str(error)))

    def on_recycled(self, reason: str) -> None:
        """A worker was replaced, and nobody noticed."""
        self._log("worker_recycled", reason=reason)

    def _isolate(self, entry: Entry) -> None:
        self._placement.isolate(entry.ref.name)
        self._times.pop(entry.ref.name, None)
        why = "it broke shared workers, and gets some of its own"
        self._log("model_isolated", model=entry.ref.name, reason=why)
        self._tasks.create_task(self._life_cycle.fail(entry, why, wakes=True))

    def _count(self, name: str) -> int:
        times, now = self._times[name], monotonic()
        times.append(now)
        while times[0] < now - WINDOW_S:
            times.popleft()
        return len(times)
