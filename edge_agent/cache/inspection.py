"""What an owner may see of the database, and emptying it: beside a running daemon too."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_agent import clock
from edge_agent.cache import scripts
from edge_agent.cache.connection import (
    database_uri,
    identity,
    log_bytes,
    open_database,
    rebuild,
    run,
)
from edge_agent.cache.faults import SQL_FAILURES, CacheUnusable, in_words, is_damage
from edge_agent.errors import ConfigError
from edge_agent.ownership import require_ours

if TYPE_CHECKING:
    from pathlib import Path

_BUSY_MS: Final = 2000
_HINT: Final = "edge-agent cache clear makes it anew; answers go on without it"
# A record that a flipped bit has hit must not end the listing of the others.
_LIST: Final = (
    "SELECT id, cast(bundle AS BLOB), cast(engine AS BLOB), created, used, hits, size "
    "FROM entries ORDER BY used DESC"
)


class Contents(NamedTuple):
    """What there is.

    Attributes:
        entries: Answers.
        hits: How often they were given again.
        size_bytes: Bytes of the database and its log.
        rebuilt: When it was made anew, ISO 8601; None for never.
        reason: Why it was.
    """

    entries: int = 0
    hits: int = 0
    size_bytes: int = 0
    rebuilt: str | None = None
    reason: str | None = None


def look(file: Path) -> Contents:
    """Says what there is, and changes nothing.

    Raises:
        CacheUnusable: The database can't be read, or is damaged.
    """
    if not os.path.lexists(file):
        return Contents()
    with _reading(file) as connection:
        size = run(connection, scripts.measure())
        notes = run(connection, scripts.notes())
        ((hits,),) = connection.execute("SELECT coalesce(sum(hits), 0) FROM entries").fetchall()
    return Contents(
        size.entries,
        int(hits),
        size.size + log_bytes(file),
        notes.get("rebuilt"),
        notes.get("reason"),
    )


def entries(file: Path) -> Iterator[dict[str, Any]]:
    """Yields what is known of each answer, the one used last first; never an input or an answer.

    Raises:
        CacheUnusable: The database can't be read, or is damaged.
    """
    if not os.path.lexists(file):
        return
    with _reading(file) as connection:
        for number, bundle, engine, created, used, hits, size in connection.execute(_LIST):
            yield {
                "key": int(number).to_bytes(8, "little", signed=True).hex(),
                "bundle": bytes(bundle).decode("utf-8", "replace"),
                "engine": bytes(engine).decode("utf-8", "replace"),
                "created": _as_text(created),
                "last_used": _as_text(used),
                "hits": hits,
                "size_bytes": size,
            }


def clear(file: Path) -> int:
    """Removes every answer; a damaged database is made anew.

    Returns:
        How many there were, as far as they could be counted.

    Raises:
        CacheUnusable: The database can't be written.
    """
    if not os.path.lexists(file):
        return 0
    try:
        with closing(open_database(file, _BUSY_MS)) as connection:
            return run(connection, scripts.clear(clock.now().isoformat()))
    except SQL_FAILURES as error:
        if not is_damage(error):
            raise _unusable(error, file) from error
        return _made_anew(file, error)


def _made_anew(file: Path, error: Exception) -> int:
    try:
        rebuild(file, identity(file), in_words(error))
    except SQL_FAILURES as again:
        raise _unusable(again, file) from again
    return 0


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    try:
        for place in (file.parent, file):
            require_ours(place)
        address = database_uri(file, "ro")
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_MS / 1000)) as connection:
            ((version,),) = connection.execute("PRAGMA user_version").fetchall()
            if version != scripts.SCHEMA_VERSION:
                raise CacheUnusable(
                    f"another version of the agent made it (format {version})",
                    path=str(file),
                    hint="the next answer makes it anew",
                )
            yield connection
    except ConfigError as error:
        raise CacheUnusable(error.message, path=error.path, hint=error.hint) from error
    except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
        raise _unusable(error, file) from error


def _unusable(error: Exception, file: Path) -> CacheUnusable:
    return CacheUnusable(in_words(error), path=str(file), hint=_HINT)


def _as_text(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
