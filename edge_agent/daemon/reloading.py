"""Puts the configuration and the keyring as they are now in force, or keeps the old ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from edge_agent.app import Agent
from edge_agent.cache.faults import CacheUnusable
from edge_agent.daemon.entrances import TokensInForce
from edge_agent.daemon.start_checks import require_startable
from edge_agent.scheduler.limits import limits_of
from edge_agent.telemetry import logs

if TYPE_CHECKING:
    from edge_agent.config import AgentConfig
    from edge_agent.daemon.building import Rooms
    from edge_agent.daemon.sd_notify import Notifier
    from edge_agent.daemon.settings import Settings
    from edge_agent.loading import Notify
    from edge_agent.server.bodies import Bodies

_LOG: Final = logging.getLogger("edge_agent.daemon")


class Reloading:
    """Takes a new configuration, whoever asks for it.

    Args:
        settings: The configuration in force.
        load_config: Reads the configuration again.
        rooms: What is told of it.
        in_force: The tokens that count.
        bodies: What reads bodies.
        notifier: The service manager.
        notify: Told of what takes time or could not be kept.
    """

    def __init__(
        self,
        settings: Settings,
        load_config: Callable[[], AgentConfig],
        rooms: Rooms,
        in_force: TokensInForce,
        bodies: Collection[Bodies],
        notifier: Notifier,
        notify: Notify,
    ) -> None:
        self._settings = settings
        self._load_config = load_config
        self._rooms = rooms
        self._in_force = in_force
        self._bodies = bodies
        self._notifier = notifier
        self._notify = notify
        self._lock = asyncio.Lock()

    async def reload(self) -> list[str]:
        """Puts what is configured now in force, and takes models out that aren't trusted any more.

        Returns:
            The keys whose change needs a restart.

        Raises:
            ConfigError: It can't be used; nothing was changed.
            edge_signing.errors.KeyringError: The keyring is malformed; nothing was changed.
        """
        async with self._lock:
            self._notifier.reloading()
            try:
                waiting = await self._take()
            except Exception as error:
                _LOG.error(
                    "reload_refused", extra={"reason": f"{error}; the old one stays in force"}
                )
                self._notifier.status(f"the new configuration can't be used: {error}")
                raise
            else:
                self._notifier.status(f"serving {self._rooms.served()}")
                return waiting
            finally:
                self._notifier.reloaded()

    async def _take(self) -> list[str]:
        config = await asyncio.to_thread(self._load_config)
        running = self._settings.serve
        await asyncio.to_thread(require_startable, Agent(config, self._notify), running.tcp)
        fresh = TokensInForce(running)
        waiting = self._settings.take(config, self._notify)
        serve = self._settings.serve
        self._in_force.adopt(fresh)
        for bodies in self._bodies:
            bodies.reconfigure(serve.max_request_mib, serve.max_queued_mib)
        logs.start(serve.log_level)
        for host in self._rooms.hosts:
            host.reconfigure(limits_of(serve))
        for entry in list(self._rooms.registry):
            self._rooms.placement.reconfigure(entry)
        if await self._rooms.life_cycle.recheck():
            await self._forget()
            for host in self._rooms.hosts:  # it may have left something in the memory of any
                host.renew("a model that ran here isn't trusted any more")
        _LOG.info("reloaded", extra={"needs_a_restart": ", ".join(waiting) or "nothing"})
        return waiting

    async def _forget(self) -> None:
        try:
            await self._rooms.answering.forget()
        except CacheUnusable as error:
            hint = "edge-agent cache clear, once it can be written"
            _LOG.error("answers_not_forgotten", extra={"reason": str(error), "hint": hint})
