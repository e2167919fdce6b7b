"""Opening the database: private, in WAL mode, of our version, and made anew where it isn't."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from edge_agent import clock
from edge_agent.cache import scripts
from edge_agent.cache.faults import (
    SQL_FAILURES,
    CacheDamaged,
    CacheUnusable,
    in_words,
    is_damage,
)
from edge_agent.cache.scripts import SCHEMA_VERSION, Rows, Script, Step
from edge_agent.errors import ConfigError
from edge_agent.ownership import locked, private_folder, require_ours

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeVar

    T = TypeVar("T")

MIN_MIB: Final = 1
# The log is emptied into the database at the first size, and cut back to the second.
_CHECKPOINT_PAGES: Final = 256
_LOG_BYTES: Final = 1024 * 1024
MAX_LOG_BYTES: Final = 16 * 1024 * 1024
_REBUILD_TIMEOUT_S: Final = 0.5
_EMPTY: Final = 0


def run(connection: sqlite3.Connection, script: Script[T]) -> T:
    """Runs a script; where a step fails, its transaction is undone.

    Raises:
        sqlite3.Error: A step failed.
        CacheUnusable: What it returned is of no use.
    """
    try:
        step = next(script)
        while True:
            step = scripts.advance(script, _rows(connection, step))
    except StopIteration as end:
        value: T = end.value
        return value
    except BaseException:
        undo(connection)
        raise


def _rows(connection: sqlite3.Connection, step: Step) -> Rows:
    if step.whole:
        return connection.executescript(step.sql).fetchall()
    execute = connection.executemany if step.many else connection.execute
    return execute(step.sql, step.parameters).fetchall()


def undo(connection: sqlite3.Connection) -> None:
    """Leaves a transaction, if there is one; a connection that can't is of no use any more."""
    if connection.in_transaction:
        try:
            connection.execute("ROLLBACK")
        except SQL_FAILURES:
            connection.close()


def open_database(file: Path, busy_ms: int) -> sqlite3.Connection:
    """Opens the database, and makes it where there is none, or a damaged one.

    Args:
        file: Its file; the folder is private to the agent.
        busy_ms: How long a statement waits for another process, in milliseconds.

    Raises:
        CacheUnusable: The folder isn't ours alone, or can't be written, or another process holds
            the database.
        sqlite3.Error: SQLite can't open it, and making it anew wouldn't help.
    """
    try:
        private_folder(file.parent, 0o700)
        for place in (file.parent, file):
            require_ours(place)
        _create(file)
    except ConfigError as error:
        raise CacheUnusable(error.message, path=error.path, hint=error.hint) from error
    except OSError as error:
        raise CacheUnusable(in_words(error), path=str(file)) from error
    seen = identity(file)
    try:
        return _connect(file, busy_ms)
    except (*SQL_FAILURES, CacheUnusable) as error:
        if not is_damage(error):
            raise
        reason = in_words(error)
    rebuild(file, seen, reason)
    return _connect(file, busy_ms)


def identity(file: Path) -> int:
    """Returns the number of the file that has this name now; 0 for none."""
    try:
        return file.stat().st_ino
    except OSError:
        return 0


def rebuild(file: Path, seen: int, reason: str) -> None:
    """Makes the database anew, unless another process has done so.

    Whoever still has the old one open goes on with a file that has no name any more, until it
    looks (`identity`).

    Args:
        file: Its file.
        seen: The `identity` of the damaged one.
        reason: Why, for `edge-agent doctor`.

    Raises:
        CacheUnusable: It can't be removed, or another process is at it.
        sqlite3.Error: The new one can't be made.
    """
    try:
        with locked(file.with_name("cache.lock"), _REBUILD_TIMEOUT_S):
            if identity(file) not in (seen, _EMPTY):
                return
            for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
                file.with_name(name).unlink(missing_ok=True)
            _create(file)
            connection = _connect(file, busy_ms=500)
            when = clock.now().isoformat(timespec="seconds")
            run(connection, scripts.note(rebuilt=when, reason=reason))
            connection.close()
    except (OSError, TimeoutError) as error:
        raise CacheUnusable(f"can't be made anew: {in_words(error)}", path=str(file)) from error


def database_uri(file: Path, mode: str) -> str:
    """Returns the address of a database that is there.

    Args:
        file: Its file.
        mode: ``ro`` or ``rw``.
    """
    return f"file:{quote(os.fsencode(file))}?mode={mode}"


def log_bytes(file: Path) -> int:
    """Returns the size of the write-ahead log."""
    try:
        return file.with_name(f"{file.name}-wal").stat().st_size
    except OSError:
        return 0


def max_pages(mib: int) -> int:
    """Returns a limit of the file's size in pages."""
    return max(MIN_MIB, mib) * 1024 * 1024 // scripts.PAGE_BYTES


def _create(file: Path) -> None:
    """Makes an empty file that nobody else can read.

    One that is there isn't opened: closing it would let go of the locks that another connection
    of this process holds (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    if not os.path.lexists(file):
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(file, flags, 0o600))
        except FileExistsError:
            return  # another process was quicker


def _connect(file: Path, busy_ms: int) -> sqlite3.Connection:
    connection = sqlite3.connect(
        database_uri(file, "rw"),
        uri=True,
        timeout=busy_ms / 1000,
        isolation_level=None,
    )
    try:
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if version == _EMPTY:
        connection.execute(f"PRAGMA page_size = {scripts.PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only while there is no table
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if mode != "wal":
        raise CacheUnusable(f"SQLite can't keep a write-ahead log here (it says {mode!r})")
    for pragma in (
        "synchronous = NORMAL",
        f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        f"journal_size_limit = {_LOG_BYTES}",
        "cache_size = -512",
        "cell_size_check = ON",
        "trusted_schema = OFF",
        "temp_store = MEMORY",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    if version == _EMPTY:
        run(connection, scripts.create())
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if version != SCHEMA_VERSION:
        raise CacheDamaged(f"another version of the agent made it (format {version})")
