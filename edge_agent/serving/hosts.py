"""Where models run: a queue, and the worker processes that serve it."""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from edge_agent.errors import AgentError

if TYPE_CHECKING:
    from edge_agent.scheduler.limits import ModelQueueSettings, SchedulerLimits
    from edge_agent.scheduler.scheduler import Scheduler
    from edge_agent.workers.pool import Pool
    from edge_agent.workers.work import Loaded


class HostKind(Struct, frozen=True):
    """What a host is for.

    Attributes:
        engine: Which engine its workers have.
        owner: Name of the only model that it serves; None where all share it.
    """

    engine: str
    owner: str | None = None


class Host:
    """One queue with its workers; a class that has workers of its own has a pool of its own.

    Args:
        kind: What it is for.
        scheduler: The queue.
        pools: Its workers.
    """

    def __init__(self, kind: HostKind, scheduler: Scheduler, pools: Sequence[Pool]) -> None:
        self.kind = kind
        self.scheduler = scheduler
        self.pools = tuple(pools)
        self.models: set[str] = set()

    async def load(self, digest: str, settings: Callable[[Loaded], ModelQueueSettings]) -> Loaded:
        """Loads a model on every worker and opens its queue.

        Raises:
            AgentError: It can't be loaded; nothing of it is left behind.
        """
        self.models.add(digest)
        done: list[Pool] = []
        try:
            for pool in self.pools:
                loaded = await pool.load(digest)
                done.append(pool)
        except BaseException:
            self.models.discard(digest)
            for pool in done:
                await _unload(pool, digest)
            raise
        self.scheduler.add_model(digest, settings(loaded))
        return loaded

    def reconfigure(self, limits: SchedulerLimits) -> None:
        """Changes what holds for its queue from now on."""
        self.scheduler.reconfigure(limits)

    def renew(self, reason: str) -> None:
        """Has its workers replaced; see `Pool.renew`."""
        for pool in self.pools:
            pool.renew(reason)

    async def unload(self, digest: str) -> None:
        """Waits until nothing of a model waits or runs, and frees it."""
        await self.scheduler.drained(digest)
        await self.drop(digest)

    async def drop(self, digest: str) -> None:
        """Frees a model; what waits for it fails with a `ModelNotReadyError`."""
        self.scheduler.remove_model(digest)
        for pool in self.pools:
            await _unload(pool, digest)
        self.models.discard(digest)


class Hosts:
    """All hosts; each is started when it is first needed, and stopped when nothing is on it.

    Args:
        make: Makes one.
        tasks: Where their pools run.
    """

    def __init__(self, make: Callable[[HostKind], Host], tasks: TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._hosts: dict[HostKind, Host] = {}

    def __iter__(self) -> Iterator[Host]:
        """Yields the hosts that are running."""
        return iter(tuple(self._hosts.values()))

    def get(self, kind: HostKind) -> Host:
        """Returns the host of a kind, started."""
        host = self._hosts.get(kind)
        if host is None:
            host = self._hosts[kind] = self._make(kind)
            for pool in host.pools:
                self._tasks.create_task(pool.run())
        return host

    async def tidy(self, deadline_s: float) -> None:
        """Stops the hosts that have no model any more.

        Args:
            deadline_s: How long a worker may take to end, in seconds.
        """
        await self._stop([host for host in self if not host.models], deadline_s)

    async def stop(self, deadline_s: float) -> None:
        """Stops all of them."""
        await self._stop(list(self), deadline_s)

    async def _stop(self, hosts: Sequence[Host], deadline_s: float) -> None:
        for host in hosts:  # all at once: somebody else may tidy up while this one waits
            del self._hosts[host.kind]
        pools = [pool for host in hosts for pool in host.pools]
        await asyncio.gather(*(pool.stop(deadline_s) for pool in pools))


async def _unload(pool: Pool, digest: str) -> None:
    """Frees a model; where its worker fails over that, it is freed with the worker."""
    with suppress(AgentError):
        await pool.unload(digest)
