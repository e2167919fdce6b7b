"""The daemon: one task group for everything that it does."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from edge_agent.daemon.building import Rooms, build
from edge_agent.daemon.entrances import TokensInForce, entrances
from edge_agent.daemon.guard import lasting
from edge_agent.daemon.reloading import Reloading
from edge_agent.daemon.start_checks import require_startable
from edge_agent.daemon.watchdog import Watchdog
from edge_agent.errors import AgentError
from edge_agent.server.apps import bodies
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.config import AgentConfig
    from edge_agent.daemon.sd_notify import Notifier
    from edge_agent.daemon.settings import Settings
    from edge_agent.loading import Notify
    from edge_agent.server.listeners import HttpServer

_LOG: Final = logging.getLogger("edge_agent.daemon")
_EXTEND_EVERY_S: Final = 10.0
_EXTEND_S: Final = 60.0
_WORKERS_STOP_S: Final = 5.0
_GC_THRESHOLD: Final = 10_000


class _Stopped(Exception):
    """Ends the task group. Source: docs.python.org, "Terminating a task group"."""


class Daemon:
    """Serves until it is told to stop.

    Args:
        settings: The configuration in force.
        load_config: Reads the configuration again.
        notifier: The service manager.
        notify: Told of what takes time or could not be kept.
    """

    def __init__(
        self,
        settings: Settings,
        load_config: Callable[[], AgentConfig],
        notifier: Notifier,
        notify: Notify,
    ) -> None:
        self._settings = settings
        self._load_config = load_config
        self._notifier = notifier
        self._notify = notify
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT; SIGHUP reads the configuration again.

        Raises:
            ConfigError: A socket can't be made, or the configuration can't be used here.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks)
                raise _Stopped
        except BaseExceptionGroup as group:
            _, others = group.split(_Stopped)
            if others is not None:
                raise _first(others) from None
        _LOG.info("stopped")

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        settings = self._settings
        require_startable(settings.agent, settings.serve.tcp)
        rooms = build(settings, tasks)
        in_force = TokensInForce(settings.serve)
        read, own = bodies(settings.serve), bodies(settings.serve)
        reloading = Reloading(
            settings, self._load_config, rooms, in_force, (read, own), self._notifier, self._notify
        )
        server = entrances(settings, rooms, in_force, read, own, reloading.reload)
        await server.start()
        caching = tasks.create_task(lasting(rooms.cache.run))
        beginning = tasks.create_task(self._begin(rooms))
        tasks.create_task(Watchdog(self._notifier, rooms.hosts, lambda: settings.serve).run())
        tasks.create_task(lasting(rooms.reconciler.run))
        tasks.create_task(lasting(rooms.revival.run))
        tasks.create_task(lasting(rooms.unloading.run))
        tasks.create_task(lasting(lambda: self._reload_when_told(reloading)))
        await self._stop.wait()
        beginning.cancel()
        await self._wind_down(server, rooms, caching)

    async def _begin(self, rooms: Rooms) -> None:
        """Loads what should be served; the service manager waits meanwhile."""
        loading = asyncio.ensure_future(rooms.reconciler.begin())
        try:
            while not loading.done():
                self._notifier.extend(_EXTEND_S)
                await asyncio.wait({loading}, timeout=_EXTEND_EVERY_S)
            loading.result()
        finally:
            loading.cancel()
            await asyncio.wait({loading})
        self._notifier.ready()
        _settle()
        self._notifier.status(f"serving {rooms.served()}")
        confined = {
            worker.confinement or "nothing: this kernel can't"
            for host in rooms.hosts
            for pool in host.pools
            for worker in pool.status().workers
        }
        facts = {"models": rooms.served(), "workers_confined_by": "; ".join(confined)}
        _LOG.info("ready", extra=facts)

    async def _wind_down(
        self, server: HttpServer, rooms: Rooms, caching: asyncio.Task[None]
    ) -> None:
        """Lets what is in the air end, to a deadline; then workers and cache."""
        drain_s = self._settings.serve.drain_s
        self._notifier.stopping()
        self._notifier.extend(drain_s + 2 * _WORKERS_STOP_S)
        _LOG.info("stopping", extra={"in_flight": server.in_flight})
        await server.stop(drain_s)
        caching.cancel()
        await asyncio.wait({caching})
        await rooms.hosts.stop(_WORKERS_STOP_S)

    async def _reload_when_told(self, reloading: Reloading) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            with suppress(AgentError, SigningError, OSError):  # told already; the old one counts
                await reloading.reload()


def _settle() -> None:
    """Has no collection look again at what stays; a request leaves no cycles behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)


def _first(error: BaseException) -> BaseException:
    """Returns the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
