"""One call's way through the cache; what is costly about it happens once, and only if it must."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from edge_agent.cache import key
from edge_agent.calls import size_of_inputs

if TYPE_CHECKING:
    from edge_agent.cache.key import CacheSubject
    from edge_agent.calls import Query

# Hashing more than this on the event loop would hold everybody else up.
INLINE_BYTES: Final = 128 * 1024
HASH_S: Final = 0.25


class Ticket:
    """A call, with what is known of its key.

    The query must stay as it is until the call has been answered.

    Attributes:
        subject: Who asks what.
        query: What is asked.
        size: Bytes of its inputs.
        fingerprint: `key.fingerprint`; of a small query, the first bits of its key.
        key: The full key; None until it was computed.
        hashing: Computing it, in a thread.
        is_admitted: Whether the database is asked, and told.
    """

    __slots__ = ("fingerprint", "hashing", "head", "is_admitted", "key", "query", "size", "subject")

    def __init__(self, subject: CacheSubject, query: Query) -> None:
        self.subject = subject
        self.query = query
        self.head = key.head(subject, query)
        self.size = size_of_inputs(query)
        self.key: bytes | None = None
        self.hashing: asyncio.Future[bytes] | None = None
        self.is_admitted = False
        if self.size <= key.SMALL_BYTES:
            self.fingerprint = key.as_number(self.compute())
        else:
            self.fingerprint = key.fingerprint(self.head, query)

    def compute(self) -> bytes:
        """Computes the full key."""
        self.key = key.key(self.head, self.query)
        return self.key


class Hasher:
    """Computes full keys, those of large inputs in a thread of its own."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "edge-agent-hash")

    async def key(self, ticket: Ticket) -> bytes | None:
        """Returns a ticket's key; None where it takes too long, or the input has gone."""
        if ticket.key is None and ticket.size <= INLINE_BYTES:
            return ticket.compute()
        if ticket.key is None:
            if ticket.hashing is None:
                loop = asyncio.get_running_loop()
                ticket.hashing = loop.run_in_executor(self._executor, ticket.compute)
                ticket.hashing.add_done_callback(_retrieve)
            await asyncio.wait({ticket.hashing}, timeout=HASH_S)
        return ticket.key

    def close(self) -> None:
        """Ends the thread, when it is done."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _retrieve(hashing: asyncio.Future[bytes]) -> None:
    """Takes note of what went wrong: a buffer that was given back needs no digest any more."""
    if not hashing.cancelled():
        hashing.exception()
