"""One run for calls that ask exactly the same while it is in the air."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from edge_agent.errors import AgentError, DeadlineExceededError, OverloadedError

if TYPE_CHECKING:
    from edge_agent.cache.flights import Flight
    from edge_agent.calls import Reply

# The leader's own time or share ran out: that says nothing of those who joined.
_LEADERS_OWN = (DeadlineExceededError, OverloadedError)


class Joining:
    """Who waits for whose run. A lone call costs no task and no future."""

    def __init__(self) -> None:
        self._led: set[Flight] = set()
        self._waiting: dict[Flight, asyncio.Future[Reply | AgentError | None]] = {}

    async def lead(self, flight: Flight, run: Callable[[], Awaitable[Reply]]) -> Reply:
        """Runs a flight's first call, and tells those who have joined what came of it.

        Raises:
            AgentError: What the run raised.
        """
        outcome: Reply | AgentError | None = None
        self._led.add(flight)
        try:
            outcome = reply = await run()
            return reply
        except AgentError as error:
            outcome = None if isinstance(error, _LEADERS_OWN) else error
            raise
        finally:
            self._led.discard(flight)
            future = self._waiting.pop(flight, None)
            if future is not None and not future.done():
                future.set_result(outcome)

    async def join(self, flight: Flight) -> Reply | None:
        """Waits for the flight's first call.

        Returns:
            Its reply; None where it gave up, was refused or went away: then ask anew.

        Raises:
            AgentError: What its run raised.
        """
        if flight not in self._led:  # it has landed; those who joined it are just leaving
            await asyncio.sleep(0)
            return None
        future = self._waiting.get(flight)
        if future is None:
            future = self._waiting[flight] = asyncio.get_running_loop().create_future()
        outcome = await asyncio.shield(future)
        if isinstance(outcome, AgentError):
            raise outcome
        return outcome
