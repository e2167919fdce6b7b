"""Runs the daemon in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from typing import Final

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.daemon.daemon import Daemon
from edge_agent.daemon.sd_notify import Notifier
from edge_agent.daemon.settings import Settings
from edge_agent.memory_allocator import reuse_large_buffers
from edge_agent.server.listeners import event_loop
from edge_agent.telemetry import logs

_LOG: Final = logging.getLogger("edge_agent.daemon")
_KEPT_BUFFER_BYTES: Final = 8 * 1024 * 1024


def run() -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code.

    Raises:
        ConfigError: The configuration can't be used.
        OSError: A socket can't be made.
    """
    config = configuration.load()
    reuse_large_buffers(_KEPT_BUFFER_BYTES, arenas=1)
    settings = Settings(Agent(config, notify))
    logs.start(settings.serve.log_level)
    gc.collect()
    gc.freeze()  # what is imported stays, and no collection needs to look at it again
    daemon = Daemon(settings, configuration.load, Notifier(os.environ), notify)
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(daemon.run())
    return 0


def notify(text: str) -> None:
    """Logs what takes time or could not be kept."""
    _LOG.info("notice", extra={"notice": text})
