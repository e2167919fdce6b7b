"""One run for calls that ask exactly the same while it is in the air."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from edge_agent.calls import Priority
from edge_agent.errors import AgentError, DeadlineExceededError, OverloadedError

if TYPE_CHECKING:
    from edge_agent.cache.flights import Flight
    from edge_agent.calls import Reply

    Run: TypeAlias = tuple[Flight, Priority]

# The leader's own time or share ran out: that says nothing of those who joined.
_LEADERS_OWN = (DeadlineExceededError, OverloadedError)


class Joining:
    """Who waits for whose run. A lone call costs no task and no future."""

    def __init__(self) -> None:
        self._led: set[Run] = set()
        self._waiting: dict[Run, asyncio.Future[Reply | AgentError | None]] = {}

    def under_way(self, flight: Flight, priority: Priority) -> Run | None:
        """Returns a run of a flight that is as urgent as a call, at least: others may wait long."""
        runs = ((flight, one) for one in Priority if one <= priority)
        return next((run for run in runs if run in self._led), None)

    async def lead(self, run: Run, work: Callable[[], Awaitable[Reply]]) -> Reply:
        """Runs a flight's first call of a class, and tells those who have joined what came of it.

        Raises:
            AgentError: What the work raised.
        """
        outcome: Reply | AgentError | None = None
        self._led.add(run)
        try:
            outcome = reply = await work()
            return reply
        except AgentError as error:
            outcome = None if isinstance(error, _LEADERS_OWN) else error
            raise
        finally:
            self._led.discard(run)
            future = self._waiting.pop(run, None)
            if future is not None and not future.done():
                future.set_result(outcome)

    async def join(self, run: Run) -> Reply | None:
        """Waits for a run that is under way.

        Returns:
            Its reply; None where it gave up, was refused or went away: then ask anew.

        Raises:
            AgentError: What its work raised.
        """
        future = self._waiting.get(run)
        if future is None:
            future = self._waiting[run] = asyncio.get_running_loop().create_future()
        outcome = await asyncio.shield(future)
        if isinstance(outcome, AgentError):
            raise copy.copy(outcome)  # one that many raise collects the tracebacks of all
        return outcome
