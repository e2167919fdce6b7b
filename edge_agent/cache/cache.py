"""The result cache of the daemon: memory in front, the database behind, and who gets in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.cache import entry, key
from edge_agent.cache.admission import Doorkeeper, Patience
from edge_agent.cache.entry import Kept
from edge_agent.cache.flights import Flights
from edge_agent.cache.memory import AnswerMemory, Held
from edge_agent.cache.scripts import Row
from edge_agent.cache.tickets import Hasher, Ticket

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.cache.database import CacheDatabase, Pace
    from edge_agent.cache.key import CacheSubject
    from edge_agent.calls import Answer, Query
    from edge_agent.serve_config import CacheConfig

_MEMORY_BYTES: Final = 8 * 1024 * 1024


class CacheStatistics(Struct, frozen=True):
    """How the cache does.

    Attributes:
        state: ``ok``, ``rebuilt``, or ``off:`` and the reason.
        hits: Lookups that found an answer.
        misses: Lookups that found none.
        puts: Answers that were kept.
        evictions: Answers that made room in the database.
        stepped_aside: Lookups that were left out, for those before had found nothing.
        dropped: Answers that weren't written, for the disk was too slow or there was none.
        errors: Reads and writes that failed, damaged answers, and a database that was made anew.
        entries: Answers in the database.
        size_bytes: Bytes of the database's file.
        memory_bytes: About how much the answers in memory take.
    """

    state: str
    hits: int
    misses: int
    puts: int
    evictions: int
    stepped_aside: int
    dropped: int
    errors: int
    entries: int
    size_bytes: int
    memory_bytes: int


class ResultCache:
    """Answers that were given before.

    For each call: `ticket`, then ``await get``, then `put` with what was computed. It never raises
    and never waits for long: whatever is wrong costs the cache, not the answer.

    Args:
        file: The database.
        config: The table ``[cache]``; where it says 0 MiB, nothing is kept or found.
        pace: How long the database is waited for; None means as usual.

    Attributes:
        is_on: Whether anything is kept at all.
        flights: Which calls in the air ask the same.
    """

    def __init__(self, file: Path, config: CacheConfig, pace: Pace | None = None) -> None:
        self._file = file
        self._ttl_s = config.ttl_s
        self.is_on = config.mib > 0
        self._doorkeeper = Doorkeeper()
        self._patience = Patience()
        self._memory = AnswerMemory(_MEMORY_BYTES)
        self._hasher = Hasher()
        self._without = "off: switched off"
        self._database = self._make_database(file, config, pace) if self.is_on else None
        self._hits = self._misses = self._puts = 0
        self.flights = Flights(self._hasher)

    async def run(self) -> None:
        """Serves the database until it is cancelled; before that, only memory is used.

        Where it fails unexpectedly, the database is left out from then on.
        """
        try:
            if self._database is not None:
                await self._database.run()
            await asyncio.Event().wait()  # inputs are hashed without a database too
        except asyncio.CancelledError:
            self._hasher.close()
            raise
        except Exception:
            self._database, self._without = None, "off: it failed unexpectedly"
            raise

    async def clear(self) -> None:
        """Forgets every answer, on the disk too.

        Raises:
            CacheUnusable: The database can't be written; nothing in memory is left all the same.
        """
        self._memory.clear()
        if self._database is not None:
            from edge_agent.cache import inspection  # which needs SQLite

            self._database.pending.clear()
            await asyncio.to_thread(inspection.clear, self._file)
            self._memory.clear()  # what was being read meanwhile

    def ticket(self, subject: CacheSubject, query: Query) -> Ticket:
        """Begins a call: decides whether it is looked up at all."""
        ticket = Ticket(subject, query)
        if self.is_on:
            seen = self._doorkeeper.has_seen(ticket.fingerprint)
            ticket.is_admitted = seen and self._patience.lasts()
        return ticket

    def looks_up(self, ticket: Ticket) -> bool:
        """Whether `get` looks for anything."""
        return self.is_on and (ticket.key is not None or ticket.is_admitted)

    async def get(self, ticket: Ticket) -> Answer | None:
        """Returns the answer to the same question of the same tenant, without timings."""
        if not self.looks_up(ticket):
            return None
        digest = ticket.key or await self._hasher.key(ticket)
        kept = None if digest is None else await self._find(ticket, digest)
        if ticket.is_admitted:
            self._patience.learn(kept is not None)
        if kept is None:
            self._misses += 1
            return None
        self._hits += 1
        return kept.answer

    def put(self, ticket: Ticket, answer: Answer) -> None:
        """Keeps an answer, if its call was admitted; doesn't wait for the disk."""
        if not self.is_on or ticket.key is None:
            return
        kept = Kept(entry.without_timings(answer), entry.seconds_now())
        is_stored = ticket.is_admitted and self._store(ticket, ticket.key, kept)
        self._memory.put(ticket.key, Held(kept, entry.size_in_memory(answer), is_stored))
        self._puts += 1

    def statistics(self) -> CacheStatistics:
        """Returns the counters since the start."""
        database = self._database
        return CacheStatistics(
            state=database.state if database else self._without,
            hits=self._hits,
            misses=self._misses,
            puts=self._puts,
            evictions=database.evicted if database else 0,
            stepped_aside=self._patience.stepped_aside,
            dropped=database.pending.dropped if database else 0,
            errors=database.errors if database else 0,
            entries=database.size.entries if database else 0,
            size_bytes=database.size.size if database else 0,
            memory_bytes=self._memory.size,
        )

    def _make_database(
        self, file: Path, config: CacheConfig, pace: Pace | None
    ) -> CacheDatabase | None:
        try:
            from edge_agent.cache.database import CacheDatabase, Pace
        except ImportError as error:  # a Python without SQLite
            self._without = f"off: {error}"
            return None
        return CacheDatabase(
            file,
            config.mib,
            config.ttl_s,
            self._doorkeeper.remember,
            self._memory.clear,
            pace or Pace(),
        )

    async def _find(self, ticket: Ticket, digest: bytes) -> Kept | None:
        held = self._memory.get(digest)
        if held is not None and not entry.lasts(held.kept.created, self._ttl_s):
            self._memory.remove(digest)
            held = None
        if held is not None:
            self._note_use(ticket, digest, held)
            return held.kept
        if self._database is None or not ticket.is_admitted:
            return None
        kept = await self._database.get(digest)
        if kept is not None:
            held = Held(kept, entry.size_in_memory(kept.answer), is_stored=True)
            self._memory.put(digest, held)
            self._note_use(ticket, digest, held)
        return kept

    def _note_use(self, ticket: Ticket, digest: bytes, held: Held) -> None:
        """Tells the database; an answer that only memory has proves worth keeping by its use."""
        if self._database is None:
            return
        if held.is_stored:
            self._database.pending.note_use(key.as_number(digest), entry.seconds_now())
        elif ticket.is_admitted and self._store(ticket, digest, held.kept):
            self._memory.put(digest, held._replace(is_stored=True))

    def _store(self, ticket: Ticket, digest: bytes, kept: Kept) -> bool:
        if self._database is None or not self._database.pending.is_open:
            return False
        value = entry.encode(digest, kept)
        if value is None or len(value) > self._database.max_entry_bytes:
            return True  # it will never fit: don't try again
        subject = ticket.subject
        return self._database.pending.put(
            Row(
                key.as_number(digest),
                ticket.fingerprint,
                subject.bundle,
                subject.origin.engine,
                kept.created,
                value,
            )
        )
