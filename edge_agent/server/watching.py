"""Work that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from edge_agent.server.errors import ClientGoneError

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange

T = TypeVar("T")

# In a connection's state: the tasks that are cancelled when it is lost.
WANTED: Final = "edge_agent.wanted"


class Wanted:
    """What works for one connection. No task of its own watches: the connection tells its end.

    Attributes:
        is_gone: Whether the client went away.
    """

    __slots__ = ("_tasks", "is_gone")

    def __init__(self) -> None:
        self.is_gone = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Has a task cancelled when the client goes away, or at once where it has gone."""
        self._tasks.add(task)
        if self.is_gone:
            task.cancel()

    def remove(self, task: asyncio.Task[Any]) -> None:
        """Leaves a task alone from now on."""
        self._tasks.discard(task)

    def end(self) -> None:
        """The client went away."""
        self.is_gone = True
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()


async def while_wanted(exchange: Exchange, work: Awaitable[T]) -> T:
    """Awaits work; it is cancelled when the client of a request goes away.

    Args:
        exchange: The request, its body read to the end.
        work: What it waits for.

    Raises:
        ClientGoneError: The client went away.
    """
    wanted: Wanted | None = exchange.scope["state"].get(WANTED)
    exchange.is_asking = True
    if wanted is None:
        return await work
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - coroutines run in tasks
    wanted.add(task)
    try:
        done = await work
    except asyncio.CancelledError:
        if wanted.is_gone and task.uncancel() == 0:
            raise ClientGoneError("the client went away") from None
        raise
    finally:
        wanted.remove(task)
    exchange.is_asking = False
    return done
