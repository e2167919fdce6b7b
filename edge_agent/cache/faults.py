"""What goes wrong with the database, and whether making it anew would help."""

from __future__ import annotations

from sqlite3 import Error
from typing import Final

from edge_agent.errors import AgentError

# What SQLite raises; where damage got into its own message, Python can't even decode that.
SQL_FAILURES: Final = (Error, UnicodeDecodeError)
# Of damage there are more signs than SQLITE_CORRUPT and SQLITE_NOTADB: a flipped bit in the schema
# makes a table unknown (SQLITE_ERROR), one in a record breaks a constraint, a type or a size.
# Source: https://www.sqlite.org/rescode.html
_DAMAGE: Final = {1, 11, 17, 18, 19, 20, 26}
_BUSY: Final = (5, 6)
_FULL: Final = 13


class CacheUnusable(AgentError):
    """The cache can't be used now; answers go on without it."""


class CacheHeld(CacheUnusable):
    """Another process reads for so long that the log can't be emptied."""


class CacheDamaged(CacheUnusable):
    """The database isn't what was written, or another version wrote it: make it anew."""


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the database has to be made anew."""
    if isinstance(error, CacheUnusable):
        return isinstance(error, CacheDamaged)
    if isinstance(error, UnicodeDecodeError):
        return True
    # What Python's module finds wrong itself, such as text that isn't UTF-8, has no code.
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, Error) and (code is None or (code & 0xFF) in _DAMAGE)


def is_busy(error: BaseException) -> bool:
    """Whether somebody else held the database for too long."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _BUSY


def is_passing(error: BaseException) -> bool:
    """Whether the connection is as good as before: somebody held it, or the disk is full."""
    code: int = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (*_BUSY, _FULL) or isinstance(error, CacheHeld)


def in_words(error: BaseException) -> str:
    """Returns the reason, for people."""
    if isinstance(error, AgentError):
        return error.message
    if isinstance(error, TimeoutError):
        return "the disk doesn't answer"
    if is_busy(error):
        return "another process holds the database"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
