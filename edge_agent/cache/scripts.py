"""What is done to the database, as scripts of SQL that the daemon and the command both run.

A script yields its steps and is sent the rows of each; it knows no connection. The daemon runs it
on aiosqlite, the one-shot command on sqlite3 (`connection.run`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from edge_agent.cache.faults import CacheDamaged, CacheHeld

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
PAGE_BYTES: Final = 4096
# Ids are the first 64 bits of keys; the whole key stands in the value. The values have a table of
# their own, so that noting a use doesn't write them again.
CREATE: Final = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, fingerprint INTEGER NOT NULL, "
    "bundle TEXT NOT NULL, engine TEXT NOT NULL, created INTEGER NOT NULL, "
    "used INTEGER NOT NULL, hits INTEGER NOT NULL, size INTEGER NOT NULL)",
    "CREATE INDEX entries_used ON entries (used)",
    "CREATE TABLE answers (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TRIGGER entry_gone AFTER DELETE ON entries "
    "BEGIN DELETE FROM answers WHERE id = OLD.id; END",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
BEGIN: Final = "BEGIN IMMEDIATE"
COMMIT: Final = "COMMIT"
# Placeholders have no numbers: early releases of Python 3.12 warn of ?1.
GET: Final = "SELECT value FROM answers WHERE id = ?"
_PUT_ENTRY: Final = (
    "INSERT INTO entries (id, fingerprint, bundle, engine, created, used, hits, size) "
    "VALUES (?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT (id) DO UPDATE SET "
    "created = excluded.created, used = max(used, excluded.used), size = excluded.size"
)
_PUT_ANSWER: Final = (
    "INSERT INTO answers (id, value) VALUES (?, ?) "
    "ON CONFLICT (id) DO UPDATE SET value = excluded.value"
)
_USED: Final = "UPDATE entries SET used = max(used, ?), hits = hits + ? WHERE id = ?"
_EVICT: Final = "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY used LIMIT ?)"
_EXPIRE: Final = "DELETE FROM entries WHERE created <= ?"
_META: Final = (
    "INSERT INTO meta (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_RECORD_BYTES: Final = 200  # of an entry and its place in the index
_SPARE_PAGES: Final = 16  # schema, inner pages, pointer map


class Step(NamedTuple):
    """One statement.

    Attributes:
        sql: Its text.
        parameters: Its parameters; with `many`, rows of them.
        many: Whether to run it once for each row.
        whole: Whether it does its work page by page: Python's ``execute`` would do the first only.
    """

    sql: str
    parameters: Sequence[Any] = ()
    many: bool = False
    whole: bool = False


Rows: TypeAlias = Sequence[Sequence[Any]]
Script: TypeAlias = Generator[Step, Rows, T]


class Row(NamedTuple):
    """An answer to be written.

    Attributes:
        id: First 64 bits of its key.
        fingerprint: Of its input.
        bundle: Digest of the bundle.
        engine: Which engine ran.
        created: In seconds since the epoch.
        value: `entry.encode`'s bytes.
    """

    id: int
    fingerprint: int
    bundle: str
    engine: str
    created: int
    value: bytes


class Use(NamedTuple):
    """How an entry was used since that was written last."""

    id: int
    used: int
    hits: int


class Size(NamedTuple):
    """How full the database is.

    Attributes:
        entries: How many answers it has.
        size: Bytes of its file.
    """

    entries: int
    size: int


def advance(script: Script[T], rows: Rows) -> Step:
    """Sends a script the rows of its last step, and returns the next one.

    Raises:
        CacheDamaged: The rows are none that the agent has written.
        StopIteration: It is done; the error has its value.
    """
    try:
        return script.send(rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise CacheDamaged(f"it holds what can't be: {error}") from error


def create() -> Script[None]:
    """Makes the tables, unless another process has done so meanwhile."""
    yield Step(BEGIN)
    if not (yield Step("SELECT name FROM sqlite_master LIMIT 1")):
        for statement in CREATE:
            yield Step(statement)
    yield Step(COMMIT)


def note(**values: str) -> Script[None]:
    """Writes what shall be known of the database itself."""
    yield Step(_META, list(values.items()), many=True)


def store(rows: Sequence[Row], uses: Sequence[Use], max_pages: int) -> Script[int]:
    """Writes answers and uses, in one transaction; what was unused for longest makes room.

    Returns:
        How many answers made room.
    """
    need = sum(_pages(row) for row in rows)
    yield Step(BEGIN)
    evicted = yield from _make_room(need, max_pages)
    if rows:
        entries = [(*row[:5], row.created, len(row.value)) for row in rows]
        yield Step(_PUT_ENTRY, entries, many=True)
        yield Step(_PUT_ANSWER, [(row.id, row.value) for row in rows], many=True)
    if uses:
        yield Step(_USED, [(use.used, use.hits, use.id) for use in uses], many=True)
    yield Step(COMMIT)
    return evicted


def tidy(expired: int, max_pages: int) -> Script[int]:
    """Removes what is too old, and keeps the file below its limit, a lowered one too.

    Args:
        expired: Answers from then and before go, in seconds since the epoch.
        max_pages: The largest size in pages.

    Returns:
        How many answers were removed for lack of room.
    """
    yield Step(BEGIN)
    yield Step(_EXPIRE, (expired,))
    evicted = yield from _make_room(0, max_pages)
    yield Step(COMMIT)
    ((pages,),) = yield Step("PRAGMA page_count")
    if pages > max_pages:
        yield Step("PRAGMA incremental_vacuum", whole=True)
        yield Step("PRAGMA wal_checkpoint(TRUNCATE)")
    # A bound of SQLite's own, beside our counting. It can't be set below what is there.
    yield Step(f"PRAGMA max_page_count = {max_pages}")
    return evicted


def clear(when: str) -> Script[int]:
    """Removes every answer, gives the space back, and has a running daemon forget its own.

    Returns:
        How many there were.
    """
    yield Step(BEGIN)
    ((count,),) = yield Step("SELECT count(*) FROM entries")
    yield Step("DELETE FROM answers")
    yield Step("DELETE FROM entries")
    yield from note(cleared=when)
    yield Step(COMMIT)
    yield Step("PRAGMA incremental_vacuum", whole=True)
    yield Step("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(count)


def empty_log() -> Script[None]:
    """Writes the log into the database and cuts it back.

    Raises:
        CacheHeld: Another process still reads from it.
    """
    ((busy, *_),) = yield Step("PRAGMA wal_checkpoint(TRUNCATE)")
    if busy:
        raise CacheHeld("another process reads for so long that the log only grows")


def measure() -> Script[Size]:
    """Says how full the database is."""
    ((entries,),) = yield Step("SELECT count(*) FROM entries")
    ((pages,),) = yield Step("PRAGMA page_count")
    return Size(int(entries), int(pages) * PAGE_BYTES)


def notes() -> Script[dict[str, str]]:
    """Returns what was noted: ``rebuilt`` and ``reason``, ``cleared``."""
    rows = yield Step("SELECT name, value FROM meta")
    return {str(name): str(value) for name, value in rows}


def fingerprints(most: int) -> Script[list[int]]:
    """Returns the fingerprints of the inputs that were used last, the newest first."""
    rows = yield Step("SELECT fingerprint FROM entries ORDER BY used DESC LIMIT ?", (most,))
    return [int(one) for (one,) in rows]


def _make_room(need: int, max_pages: int) -> Script[int]:
    """Removes the entries that were unused for longest, until so many pages are free."""
    usable = max_pages - _SPARE_PAGES
    used = yield from _used_pages()
    if used + need <= usable:
        return 0
    aim = max(0, usable - usable // 8 - need)  # room for a while, not for this batch alone
    ((before,),) = yield Step("SELECT count(*) FROM entries")
    left = before
    while used > aim and left:
        # As many as would do if all were of one size; a lower bound keeps the rounds few.
        share = -(-left * (used - aim) // used)
        yield Step(_EVICT, (max(16, share),))
        used = yield from _used_pages()
        ((left,),) = yield Step("SELECT count(*) FROM entries")
    return int(before - left)


def _used_pages() -> Script[int]:
    ((pages,),) = yield Step("PRAGMA page_count")
    ((free,),) = yield Step("PRAGMA freelist_count")
    return int(pages) - int(free)


def _pages(row: Row) -> int:
    return -(-(len(row.value) + _RECORD_BYTES) // PAGE_BYTES) + 1
