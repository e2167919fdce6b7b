"""Equal workers that take batches from one source: supervised, replaced, recycled."""

from __future__ import annotations

import asyncio
from collections import Counter
from time import monotonic

from edge_agent.workers.events import PoolEvents, PoolStatus
from edge_agent.workers.opening import opened
from edge_agent.workers.settings import PoolSettings
from edge_agent.workers.slot import Slot
from edge_agent.workers.work import Loaded, OpenModel, WorkSource

_WATCH_S = 0.5


class Pool:
    """A number of workers; made inside of the event loop.

    Args:
        settings: How many, and how they are set up.
        work: Where they get their batches.
        open_model: Opens a model; the pool closes its files.
        events: Told of what happens to them.
    """

    def __init__(
        self, settings: PoolSettings, work: WorkSource, open_model: OpenModel, events: PoolEvents
    ) -> None:
        self._open_model = open_model
        self._slots = [Slot(settings, work, open_model, events) for _ in range(settings.count)]
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._is_running = False
        self._unloading: set[asyncio.Task[None]] = set()
        self._ends_at = 0.0

    async def run(self) -> None:
        """Starts the workers and has them work until `stop`; when it returns they are gone."""
        self._is_running = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._watch())]
                for slot in self._slots:
                    tasks += group.create_task(slot.serve()), group.create_task(slot.keep())
                await self._stopping.wait()
                await self._drain()
                for task in tasks:
                    task.cancel()
        finally:
            left_s = max(0.0, self._ends_at - monotonic())
            try:
                await asyncio.gather(*(slot.end(left_s) for slot in self._slots))
                await asyncio.gather(*self._unloading)
            finally:
                self._stopped.set()

    async def load(self, digest: str) -> Loaded:
        """Loads a model on every worker, or on none.

        Returns:
            How it does where it does worst.

        Raises:
            AgentError: It can't be opened or loaded.
            edge_signing.errors.SigningError: It can't be trusted.
        """
        async with opened(self._open_model, digest) as files:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(slot.load(files)) for slot in self._slots]
            except asyncio.CancelledError:
                self._unload_soon(digest)  # a worker that hangs is not to hold up who gave up
                raise
            except BaseException as error:
                await self.unload(digest)
                if isinstance(error, BaseExceptionGroup):
                    raise error.exceptions[0] from None
                raise
        every = [task.result() for task in tasks]
        slowest = max(every, key=lambda one: one.run_ms)
        batches = all(one.batches for one in every)
        return Loaded(slowest.run_ms, batches, slowest.engine_version)

    async def unload(self, digest: str) -> None:
        """Frees a model on every worker; one that isn't loaded is no error."""
        await asyncio.gather(*(slot.unload(digest) for slot in self._slots))

    def renew(self, reason: str) -> None:
        """Has every worker replaced, without a batch that fails.

        Args:
            reason: Why they aren't relied on any more.
        """
        for slot in self._slots:
            slot.renew(reason)

    async def stop(self, deadline_s: float) -> None:
        """Lets running batches end, and ends the workers.

        Args:
            deadline_s: After so long what still runs fails, in seconds.
        """
        self._ends_at = monotonic() + deadline_s
        self._stopping.set()
        if self._is_running:
            await self._stopped.wait()

    def status(self) -> PoolStatus:
        """Returns how the workers do now."""
        restarts: Counter[str] = Counter()
        for slot in self._slots:
            restarts.update(slot.restarts)
        return PoolStatus(tuple(slot.status() for slot in self._slots), dict(restarts))

    def _unload_soon(self, digest: str) -> None:
        task = asyncio.create_task(self.unload(digest))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._ends_at - monotonic()):
                await asyncio.gather(*(slot.drain() for slot in self._slots))
        except TimeoutError:
            return  # what still runs fails

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            for slot in self._slots:
                slot.check_memory()
