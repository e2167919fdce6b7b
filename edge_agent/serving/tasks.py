"""Where work goes that nobody waits for."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Coroutine
from typing import Any, Protocol


class Tasks(Protocol):
    """Somebody awaits each task in the end, such as an `asyncio.TaskGroup`."""

    def create_task(self, work: Coroutine[Any, Any, None], /) -> Task[None]:
        """Starts a task."""
