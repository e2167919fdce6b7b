"""Workers that wait for work."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from msgspec import Struct

from edge_agent.calls import Priority


class _Idle(Struct, eq=False):
    """One worker, and what it could do."""

    models: Container[str]
    classes: Container[Priority]
    woken: asyncio.Future[None]


class IdleWorkers:
    """Workers that wait for work: woken to look for it, never handed it.

    So a worker that goes away in the moment in which it is woken takes no job with it.
    """

    def __init__(self) -> None:
        self._idle: dict[_Idle, None] = {}

    def __len__(self) -> int:
        return len(self._idle)

    async def wait(self, models: Container[str], classes: Container[Priority]) -> None:
        """Waits until there may be work for a worker."""
        woken = asyncio.get_running_loop().create_future()
        one = _Idle(models, classes, woken)
        self._idle[one] = None
        try:
            await woken
        except asyncio.CancelledError:
            if not woken.cancelled():
                self.wake_all()
            raise
        finally:
            del self._idle[one]

    def wake_one(self, model: str, priority: Priority) -> None:
        """Has a worker look that could do a job of this model and class."""
        for one in self._idle:
            if not one.woken.done() and model in one.models and priority in one.classes:
                one.woken.set_result(None)
                return

    def wake_all(self) -> None:
        """Has every worker look."""
        for one in self._idle:
            if not one.woken.done():
                one.woken.set_result(None)
