"""Work that ends when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from edge_agent.server.errors import ClientGoneError

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange

T = TypeVar("T")


async def while_wanted(exchange: Exchange, work: Awaitable[T]) -> T:
    """Awaits work; it is cancelled when the client of a request goes away.

    Args:
        exchange: The request, its body read to the end.
        work: What it waits for.

    Raises:
        ClientGoneError: The client went away.
    """
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - coroutines run in tasks
    watcher = asyncio.get_running_loop().create_task(_watch(exchange, task))
    try:
        return await work
    except asyncio.CancelledError:
        if exchange.is_gone and task.uncancel() == 0:
            raise ClientGoneError("the client went away") from None
        raise
    finally:
        watcher.cancel()


async def _watch(exchange: Exchange, task: asyncio.Task[Any]) -> None:
    while (await exchange.receive())["type"] != "http.disconnect":
        pass
    exchange.is_gone = True
    task.cancel()
