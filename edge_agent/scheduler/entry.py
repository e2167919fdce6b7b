"""A job on its way from the caller to its answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.calls import Query

if TYPE_CHECKING:
    from edge_agent.scheduler.arrivals import Arrivals
    from edge_agent.scheduler.class_queue import ClassQueue
    from edge_agent.scheduler.job import Ran

_NOTHING: Final = Query(wants="labels")


class Entry(Struct, eq=False):
    """One job that waits or runs.

    Attributes:
        number: Position among all jobs ever submitted.
        since: When it was submitted.
        deadline: When its answer is of no use any more.
        tenant: Who asks.
        query: What is asked; empty once the caller has an answer, for whoever still points here.
        rows: How many rows it has.
        size: Bytes of its query.
        queue: Where it waits, or waited.
        group: Whom it may run with; None where it runs alone.
        caller: What its caller awaits; None once that is over, for an answer may be large.
        is_waiting: False from the moment a worker gets it, or its caller an answer.
        is_again: Whether it runs by itself after the batch failed in which it was.
    """

    number: int
    since: float
    deadline: float
    tenant: str
    query: Query
    rows: int
    size: int
    queue: ClassQueue
    group: Arrivals | None
    caller: asyncio.Future[Ran] | None
    is_waiting: bool = False
    is_again: bool = False

    def is_open(self) -> bool:
        """Whether anybody waits for an answer."""
        return self.caller is not None and not self.caller.done()

    def release(self) -> None:
        """Lets go of query and answer."""
        self.query = _NOTHING
        self.caller = None
