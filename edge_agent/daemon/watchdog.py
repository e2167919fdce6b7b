"""Feeds the service manager's watchdog, as long as the supervisor does its work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edge_agent.daemon.sd_notify import Notifier
    from edge_agent.serve_config import ServeConfig
    from edge_agent.serving.hosts import Hosts

# A worker that can't prove itself is replaced long before; that it isn't means nobody looks.
_PROOFS_MISSED: Final = 6
_LOAD_S: Final = 60.0  # a worker that loads a model is at work for so long, and one that runs too


class Watchdog:
    """Says that the service is alive while every worker proves itself, or is being replaced.

    A model that hangs can't have the service restarted again and again: its worker is killed by
    its pool, and that counts. Only a supervisor that does neither is not alive.

    Args:
        notifier: Whom to tell.
        hosts: The workers.
        config: What is configured now.
    """

    def __init__(self, notifier: Notifier, hosts: Hosts, config: Callable[[], ServeConfig]) -> None:
        self._notifier = notifier
        self._hosts = hosts
        self._config = config

    async def run(self) -> None:
        """Feeds it, for ever; returns at once where there is none."""
        if self._notifier.watchdog_s is None:
            return
        while True:
            if self.is_alive(monotonic()):
                self._notifier.alive()
            await asyncio.sleep(self._notifier.watchdog_s / 3)

    def is_alive(self, now: float) -> bool:
        """Whether every worker that is there has proved itself lately."""
        config = self._config()
        patience_s = config.canary_s * _PROOFS_MISSED + _LOAD_S + config.max_run_ms / 1e3
        return all(
            worker.pid is None or now - worker.last_proof < patience_s
            for host in self._hosts
            for pool in host.pools
            for worker in pool.status().workers
        )
