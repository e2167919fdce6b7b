"""Work in the background: what fails there unexpectedly is logged, and ends nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

_LOG: Final = logging.getLogger("edge_agent.daemon")
_AGAIN_S: Final = 5.0


class Guarded:
    """Starts tasks in a group that their failure doesn't end; implements `serving.tasks.Tasks`.

    Args:
        tasks: The group.
    """

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task that ends without an error, whatever becomes of the work."""
        return self._tasks.create_task(_logged(work))


async def lasting(run: Callable[[], Coroutine[Any, Any, None]], again_s: float = _AGAIN_S) -> None:
    """Runs what should run for ever, and begins anew where it fails; returns when it returns.

    Args:
        run: What should.
        again_s: How long to wait before, in seconds.
    """
    while True:
        try:
            return await run()
        except Exception as error:  # noqa: BLE001 - it is logged, and begun anew
            _LOG.error("background_fault", exc_info=error)
            await asyncio.sleep(again_s)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - it is logged, and whoever serves goes on
        _LOG.error("background_fault", exc_info=error)
