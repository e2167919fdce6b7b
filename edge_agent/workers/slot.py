"""The place of one worker in a pool: whatever becomes of the process, its successor takes it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Final

from edge_agent.calls import Answer
from edge_agent.errors import (
    AgentError,
    GoldenMismatchError,
    ModelNotReadyError,
    WorkerFailedError,
)
from edge_agent.workers.events import PoolEvents, WorkerStatus
from edge_agent.workers.memory_caps import MemoryCaps
from edge_agent.workers.pending import reject
from edge_agent.workers.settings import PoolSettings
from edge_agent.workers.wanted_models import WantedModels
from edge_agent.workers.work import Batch, Loaded, ModelFiles, OpenModel, Outcome, WorkSource
from edge_agent.workers.worker import Ended, Worker

# Before the next start, by how many workers ended in a row that had proved nothing.
_BACKOFF_S: Final = (0.0, 0.0, 0.1, 0.5, 2.0, 5.0)
# At most so often: a worker may need more for its first run than when it had just loaded.
_RECYCLE_AGAIN_S: Final = 30.0
_STOP_S: Final = 5.0


class Slot:
    """Serves batches, one at a time, with one worker after another.

    Args:
        settings: The pool's.
        work: Where batches come from.
        open_model: Opens a model, to load it in a new worker.
        events: Told of what happens.

    Attributes:
        models: Digests of the models that are loaded now.
        restarts: How often the worker was replaced, by reason.
    """

    def __init__(
        self, settings: PoolSettings, work: WorkSource, open_model: OpenModel, events: PoolEvents
    ) -> None:
        self.models: set[str] = set()
        self.restarts: Counter[str] = Counter()
        self._settings = settings
        self._work = work
        self._events = events
        self._worker: Worker | None = None
        self._coming: Worker | None = None
        self._leaving: dict[Worker, asyncio.Task[None]] = {}
        self._wanted = WantedModels(open_model, settings.load_timeout_s, events.on_model_lost)
        self._up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._use = asyncio.Lock()  # held while the worker runs a batch or a probe, or is swapped
        self._change = asyncio.Lock()  # held while models come and go, or a worker is made
        self._woken = asyncio.Event()
        self._failures = 0
        self._last_proof = monotonic()
        self._last_probed = ""
        self._caps = MemoryCaps(settings)
        self._recycle_from = 0.0
        self._distrust = ""

    def status(self) -> WorkerStatus:
        """Returns how the worker does now."""
        worker = self._worker
        if worker is None or worker.ready is None or worker.ended.done():
            return WorkerStatus(None, 0, self._last_proof)
        return WorkerStatus(
            worker.pid,
            worker.held_bytes(),
            self._last_proof,
            worker.ready.engine_version,
            worker.ready.confinement,
        )

    async def serve(self) -> None:
        """Runs batches until it is cancelled."""
        while True:
            batch = await self._work.next_batch(self.models, self._settings.classes)
            outcomes: Sequence[Outcome] | None = None
            try:
                outcomes = await self._run(batch)
            finally:
                batch.done(_all_failed(batch, _stopped()) if outcomes is None else outcomes)

    async def keep(self) -> None:
        """Keeps a worker there, in good health, until it is cancelled."""
        while True:
            self._woken.clear()
            if self._is_down():
                await self._bring_up()
            elif (reason := self._reason_to_recycle()) is not None:
                await self._recycle(reason)
            elif monotonic() >= self._proof_due():
                await self._prove()
            await self._pause()

    def check_memory(self) -> None:
        """Ends a worker that holds more than it may; a large one will be replaced."""
        for worker in (self._worker, self._coming):
            if worker is None or worker.ended.done():
                continue
            worker.look()
            excess = self._caps.excess(worker)
            if excess is not None:
                worker.kill("memory", f"the worker {excess}, and was ended")
        if self._reason_to_recycle() is not None:
            self._woken.set()

    def renew(self, reason: str) -> None:
        """Has another process take the worker's place, as soon as that has the models.

        Args:
            reason: Why this one isn't relied on any more.
        """
        self._distrust = reason
        self._recycle_from = 0.0
        self._woken.set()

    async def load(self, files: ModelFiles) -> Loaded:
        """Loads a model, once a worker is there.

        Raises:
            AgentError: It can't be loaded.
        """
        is_again = False
        while True:
            await self._alive()
            async with self._change:
                worker = self._worker
                if worker is None or worker.ended.done():
                    continue
                try:
                    loaded = await worker.load(files, self._settings.load_timeout_s)
                except WorkerFailedError:
                    if is_again or not _may_be_innocent(files.digest, worker):
                        raise
                    is_again = True
                    continue
                self._wanted.add(files.digest)
                self.models.add(files.digest)
                self._proved()
                self._caps.measure(worker)
            self._work.models_changed()
            return loaded

    async def unload(self, digest: str) -> None:
        """Frees a model, if it is there."""
        self._wanted.remove(digest)
        self.models.discard(digest)
        async with self._change:
            self.models.discard(digest)
            if self._worker is not None:
                await self._free(self._worker, digest)

    async def drain(self) -> None:
        """Takes no more batches, and waits until none is running."""
        self._wanted.clear()
        self.models.clear()
        self._work.models_changed()
        await asyncio.sleep(0)  # a batch may be on its way here
        async with self._use:
            pass

    async def end(self, timeout_s: float) -> None:
        """Ends the worker for good; nobody may be in `serve` or `keep`."""
        self.models.clear()
        workers = [one for one in (self._worker, self._coming) if one is not None]
        self._worker = self._coming = None
        if self._up.done():
            self._up = asyncio.get_running_loop().create_future()
        reject(self._up, _stopped())
        await asyncio.gather(
            *(one.stop(timeout_s) for one in workers), *(one.stop(0) for one in self._leaving)
        )
        await asyncio.gather(*self._leaving.values())

    async def _run(self, batch: Batch) -> Sequence[Outcome]:
        try:
            outcomes = await self._run_alone(batch)
        except AgentError as error:
            return _all_failed(batch, error)
        if Answer in map(type, outcomes):
            self._proved()
        return outcomes

    async def _run_alone(self, batch: Batch) -> Sequence[Outcome]:
        while True:
            # Not within the lock: whoever sees to a new worker may need it.
            if self._is_down():
                await self._alive()
            async with self._use:
                worker = self._worker
                if worker is not None and not worker.ended.done():
                    return await worker.run(batch.model, batch.queries, batch.timeout_s)

    async def _alive(self) -> Worker:
        """Returns the worker, once there is one.

        Raises:
            AgentError: The next one can't be started.
        """
        while self._is_down() or self._worker is None:
            up = self._up
            await asyncio.wait((up,))
            up.result()
        return self._worker

    def _is_down(self) -> bool:
        """Whether there is no worker, and sees to it that all know."""
        if self._worker is not None and self._worker.ended.done():
            self._worker = None
            self.models.clear()
            self._up = asyncio.get_running_loop().create_future()
        return self._worker is None

    async def _bring_up(self) -> None:
        while True:
            await asyncio.sleep(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])
            async with self._change:
                try:
                    worker, models = await self._new_worker()
                except AgentError as error:
                    up, self._up = self._up, asyncio.get_running_loop().create_future()
                    reject(up, error)
                    continue
                self._install(worker, models)
                self._up.set_result(None)
                return

    async def _new_worker(self) -> tuple[Worker, set[str]]:
        """Starts a worker that has all models, but for those that are lost."""
        distrust, self._distrust = self._distrust, ""  # what is said from now on is of this one
        try:
            worker = await self._started()
            try:
                models = await self._wanted.load_into(worker)
            except BaseException:
                self._coming = None
                await worker.stop(0)
                raise
        except BaseException:
            self._distrust = self._distrust or distrust
            raise
        return worker, models

    async def _started(self) -> Worker:
        try:
            worker = await Worker.start(self._settings.worker)
        except AgentError as error:
            self._failures += 1
            self.restarts["start"] += 1
            self._events.on_worker_failed(None, str(error))
            raise
        self._coming = worker
        worker.ended.add_done_callback(lambda ended: self._ended(ended.result()))
        return worker

    def _ended(self, ended: Ended) -> None:
        if ended.trouble is None:
            return
        self._failures += 1
        self.restarts[ended.trouble] += 1
        self._is_down()
        self._woken.set()
        digest = next(iter(ended.models)) if len(ended.models) == 1 else None
        reason = f"{ended.message} ({ended.said})" if ended.said else ended.message
        self._events.on_worker_failed(digest, reason)

    def _install(self, worker: Worker, models: set[str]) -> None:
        self._worker, self._coming = worker, None
        self.models.clear()
        self.models.update(one for one in models if one in self._wanted)
        self._last_proof = monotonic()  # each model has just answered its golden input
        self._caps.measure(worker)
        self._work.models_changed()

    def _reason_to_recycle(self) -> str | None:
        worker = self._worker
        if worker is None or worker.ended.done() or monotonic() < self._recycle_from:
            return None
        return self._distrust or self._caps.growth(worker)

    async def _recycle(self, reason: str) -> None:
        self._recycle_from = monotonic() + _RECYCLE_AGAIN_S
        async with self._change:
            try:
                worker, models = await self._new_worker()
            except AgentError:
                return
            async with self._use:
                was_down, old = self._is_down(), self._worker
                self._install(worker, models)
            if was_down:
                self._up.set_result(None)
        if old is not None:
            leaving = asyncio.create_task(old.stop(_STOP_S))
            self._leaving[old] = leaving
            leaving.add_done_callback(lambda _: self._leaving.pop(old))
        self.restarts["recycled"] += 1
        self._events.on_recycled(reason)

    def _proved(self) -> None:
        self._last_proof = monotonic()
        self._failures = 0

    def _proof_due(self) -> float:
        if not self.models:  # nothing that it could get wrong
            self._last_proof = monotonic()
        return self._last_proof + self._settings.canary_s

    async def _prove(self) -> None:
        # Not beside a load: the child does one after the other, and a load may take long.
        async with self._change, self._use:
            worker = self._worker
            if worker is None or monotonic() < self._proof_due():
                return
            digest = self._next_probed()
            try:
                await worker.probe(digest, self._settings.probe_timeout_s)
            except GoldenMismatchError as error:
                self.models.discard(digest)
                self._wanted.lose(digest, error)
            except WorkerFailedError:
                return  # it has ended, and was reported
            except AgentError as error:
                if digest in self.models:
                    message = f"the worker failed a golden input: {error.message}"
                    worker.kill("canary", message, frozenset({digest}))
                return
            else:
                self._proved()
                return
            await self._free(worker, digest)

    async def _free(self, worker: Worker, digest: str) -> None:
        try:
            # It may wait behind a load that nobody wants any more.
            await worker.unload(digest, self._settings.load_timeout_s)
        except (ModelNotReadyError, WorkerFailedError):
            return  # it isn't there

    def _next_probed(self) -> str:
        order = sorted(self.models)
        self._last_probed = next((one for one in order if one > self._last_probed), order[0])
        return self._last_probed

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._proof_due() - monotonic())):
                await self._woken.wait()
        except TimeoutError:
            return


def _may_be_innocent(digest: str, worker: Worker) -> bool:
    """Whether a worker was ended by another model, or from outside."""
    return worker.ended.done() and worker.ended.result().models != {digest}


def _all_failed(batch: Batch, error: AgentError) -> Sequence[Outcome]:
    return [error] * len(batch.queries)


def _stopped() -> WorkerFailedError:
    return WorkerFailedError("the workers were stopped")
