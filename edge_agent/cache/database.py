"""The daemon's side of the database: it may fail, fill up or hang, and costs no answer by it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from sqlite3 import Error
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent import clock
from edge_agent.cache import async_connection, connection, entry, key, scripts
from edge_agent.cache.admission import GENERATION
from edge_agent.cache.faults import CacheUnusable, in_words, is_damage, is_passing
from edge_agent.cache.pending import Pending
from edge_agent.cache.scripts import Size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import aiosqlite

    from edge_agent.cache.entry import Kept

_LAST_WORDS_S: Final = 1.0
_READER_BUSY_MS: Final = 20
_WRITER_BUSY_MS: Final = 1000
_MAX_READS: Final = 32
_FAILURES: Final = (Error, OSError, CacheUnusable, MemoryError, ValueError)


class Pace(Struct, frozen=True):
    """How long the database is waited for, in seconds.

    Attributes:
        get_s: A lookup that takes longer counts as a miss.
        gather_s: How long a batch may grow.
        tick_s: How often it is looked at where nothing is written.
        tidy_s: How often what is too old is removed.
        retry_s: How long it is left alone after it failed.
    """

    get_s: float = 0.05
    gather_s: float = 0.2
    tick_s: float = 10.0
    tidy_s: float = 60.0
    retry_s: float = 30.0


class CacheDatabase:
    """Answers by key, on the disk. One connection reads, one writes, both belong to `run`.

    Args:
        file: Where it lies.
        mib: Largest size of the file in MiB.
        ttl_s: How long an answer is kept, in seconds.
        opened: Told the fingerprints of what it has, the newest first, whenever it was opened.
        cleared: Told that another process has emptied it.
        pace: How long it is waited for.

    Attributes:
        state: ``ok``, ``rebuilt``, or ``off:`` and the reason.
        size: How full it was when that was looked at last.
        evicted: Answers that made room.
        errors: Reads and writes that failed, damaged answers, and a database that was made anew.
        pending: What waits to be written.
        max_entry_bytes: Larger answers aren't kept.
    """

    def __init__(
        self,
        file: Path,
        mib: int,
        ttl_s: int,
        opened: Callable[[Sequence[int]], None],
        cleared: Callable[[], None],
        pace: Pace,
    ) -> None:
        self._file = file
        self._ttl_s = ttl_s
        self._max_pages = connection.max_pages(mib)
        self._opened = opened
        self._cleared = cleared
        self._pace = pace
        self._reader: aiosqlite.Connection | None = None
        self._reads: set[asyncio.Task[Kept | None]] = set()
        self._trouble: BaseException | None = None
        self._identity = 0
        self._when_cleared: str | None = None
        self._healthy = "ok"
        self._measured = 0.0
        self._started = clock.now().isoformat(timespec="seconds")
        self.pending = Pending()
        self.max_entry_bytes = min(entry.MAX_ENTRY_BYTES, mib * 1024 * 1024 // 8)
        self.state = "off: not opened yet"
        self.size = Size(0, 0)
        self.evicted = 0
        self.errors = 0

    async def get(self, digest: bytes) -> Kept | None:
        """Returns what is kept under a key; None also where the disk takes more than 50 ms."""
        reader = self._reader
        if reader is None or len(self._reads) >= _MAX_READS:
            return None
        read = asyncio.ensure_future(self._read(reader, digest))
        self._reads.add(read)  # an event loop holds no task that nobody else holds
        read.add_done_callback(self._reads.discard)
        done, _ = await asyncio.wait({read}, timeout=self._pace.get_s)
        return read.result() if done and not read.cancelled() else None

    async def run(self) -> None:
        """Keeps the database open, writes, and tidies up, until it is cancelled."""
        failed = -self._pace.retry_s
        while True:
            try:
                await self._hold_open()
            except _FAILURES as error:
                self._turn_off(error)
                if monotonic() - failed < self._pace.retry_s:
                    await asyncio.sleep(self._pace.retry_s)
                failed = monotonic()
                await self._mend(error)

    async def _read(self, reader: aiosqlite.Connection, digest: bytes) -> Kept | None:
        try:
            rows = await reader.execute_fetchall(scripts.GET, (key.as_number(digest),))
        except (Error, ValueError) as error:  # ValueError: it is being closed
            self.errors += 1
            if is_damage(error):
                self._trouble = error
                self.pending.came.set()
            return None
        for (value,) in rows:
            kept = entry.decode(digest, value)
            if kept is None:
                self.errors += 1
            elif entry.lasts(kept.created, self._ttl_s):
                return kept
        return None

    async def _mend(self, error: BaseException) -> None:
        """Makes a damaged database anew; `connection.open_database` does so at the next open."""
        if not is_damage(error):
            return
        with suppress(*_FAILURES):
            reason = in_words(error)
            await asyncio.to_thread(connection.rebuild, self._file, self._identity, reason)

    async def _hold_open(self) -> None:
        writer = await async_connection.connect(self._file, _WRITER_BUSY_MS)
        try:
            reader = await async_connection.connect(self._file, _READER_BUSY_MS)
            try:
                self._identity = connection.identity(self._file)
                self._trouble = None
                notes = await async_connection.run(writer, scripts.notes())
                self._when_cleared = notes.get("cleared")
                if notes.get("rebuilt", "") >= self._started:
                    self.errors += self._healthy == "ok"
                    self._healthy = "rebuilt"
                known = await async_connection.run(writer, scripts.fingerprints(GENERATION))
                self._opened(known)
                self._reader = reader
                await self._write(writer)
            finally:
                self._reader = None
                self.pending.close()
                await async_connection.close(reader)
        finally:
            await async_connection.close(writer)

    async def _write(self, writer: aiosqlite.Connection) -> None:
        """Writes and tidies up; what passes, such as a full disk, only makes it pause."""
        tidied = -self._pace.tidy_s
        try:
            while True:
                try:
                    if monotonic() - tidied >= self._pace.tidy_s:
                        await self._tidy(writer)
                        tidied = monotonic()
                    await self._gather()
                    self._require_same_file()
                    await self._commit(writer)
                    await self._look(writer)
                except _FAILURES as error:
                    if not is_passing(error):
                        raise
                    self._turn_off(error)
                    tidied = -self._pace.tidy_s
                    await asyncio.sleep(self._pace.retry_s)
        except asyncio.CancelledError:
            await self._last_words(writer)
            raise

    async def _gather(self) -> None:
        """Waits until there is something to write, and a little more, so that a batch comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.tick_s):
                await self.pending.came.wait()
        if self.pending and not self.pending.is_batch:
            await asyncio.sleep(self._pace.gather_s)
        self.pending.came.clear()

    def _require_same_file(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        if connection.identity(self._file) != self._identity:
            raise CacheUnusable("another process has replaced it", path=str(self._file))

    async def _commit(self, writer: aiosqlite.Connection) -> None:
        while True:
            if connection.log_bytes(self._file) > connection.MAX_LOG_BYTES:
                await async_connection.run(writer, scripts.empty_log())
            rows = self.pending.take_rows()
            uses = self.pending.take_uses()
            if rows or uses:
                script = scripts.store(rows, uses, self._max_pages)
                self.evicted += await async_connection.run(writer, script)
            if not self.pending:
                return

    async def _tidy(self, writer: aiosqlite.Connection) -> None:
        script = scripts.tidy(entry.seconds_now() - self._ttl_s, self._max_pages)
        self.evicted += await async_connection.run(writer, script)
        await self._measure(writer)
        self.state = self._healthy
        self.pending.is_open = True

    async def _look(self, writer: aiosqlite.Connection) -> None:
        """Looks whether another process has emptied it, and now and then how full it is."""
        if monotonic() - self._measured >= self._pace.tick_s:  # it counts all that there is
            await self._measure(writer)
        notes = await async_connection.run(writer, scripts.notes())
        if notes.get("cleared") != self._when_cleared:
            self._when_cleared = notes.get("cleared")
            self._cleared()

    async def _measure(self, writer: aiosqlite.Connection) -> None:
        self.size = await async_connection.run(writer, scripts.measure())
        self._measured = monotonic()

    async def _last_words(self, writer: aiosqlite.Connection) -> None:
        with suppress(*_FAILURES):
            async with asyncio.timeout(_LAST_WORDS_S):
                if writer.in_transaction:
                    await writer.rollback()
                await self._commit(writer)

    def _turn_off(self, error: BaseException) -> None:
        self.errors += 1
        self.state = f"off: {in_words(error)}"
        self.pending.close()
