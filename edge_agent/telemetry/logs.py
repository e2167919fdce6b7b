"""The daemon's log: a JSON document a line on standard error, which journald keeps as it is.

What was asked and answered never gets in: a field is a number, a truth value or a short text; of
anything else (bytes, arrays, lists of labels) only the type is written. Of errors that this program
didn't raise on purpose there is the kind and the place, not the message: it may quote an input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from edge_agent.errors import AgentError
from edge_signing.errors import SigningError

LEVELS: Final = ("debug", "info", "warning", "error")
MAX_TEXT: Final = 512
MAX_NAME: Final = 64
MAX_FIELDS: Final = 24
# What other libraries tell below a warning is their inner life, and may hold anything.
_OWN: Final = "edge_agent"
_MAX_FRAMES: Final = 16
_MAX_DIGITS: Final = 40
# Source: sd-daemon(3), "SD_WARNING" and its like: journald takes the number off again.
_JOURNAL_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Set for each request at level debug; each line that is written meanwhile bears it."""


class JsonLines(logging.Formatter):
    """Makes a line of a record: ``extra`` gives its fields, and ``request_id`` where it is known.

    Args:
        for_journal: Whether journald reads the lines: then each begins with its priority.
    """

    def __init__(self, for_journal: bool = False) -> None:
        super().__init__()
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        when = datetime.fromtimestamp(record.created, UTC)
        document: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _shown(_message(record)),
        }
        fields = {key: value for key, value in vars(record).items() if key not in _USUAL}
        request_id = fields.pop("request_id", None) or REQUEST_ID.get()
        if request_id:
            document["request_id"] = _shown(request_id)
        for key in list(fields)[:MAX_FIELDS]:
            document.setdefault(key[:MAX_NAME], _shown(fields[key]))
        if record.exc_info and record.exc_info[1] is not None:
            document["error"] = _error(record.exc_info[1])
        line = json.dumps(document).replace("\x7f", "\\u007f")
        priority = _JOURNAL_PRIORITIES.get(record.levelname, 6)
        return f"<{priority}>{line}" if self._for_journal else line


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines; where nobody reads them, the work goes on."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - logging's
        return


def start(level: str, stream: TextIO | None = None) -> None:
    """Has all loggers write JSON lines.

    Args:
        level: One of `LEVELS`; may be called again with another.
        stream: Where to; standard error where none is given.
    """
    stream = stream or sys.stderr
    handler = _Lines(stream)
    handler.setFormatter(JsonLines(_is_journal(stream)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.getLevelNamesMapping()[level.upper()], logging.WARNING))
    logging.getLogger(_OWN).setLevel(level.upper())
    logging.captureWarnings(True)


def _is_journal(stream: TextIO) -> bool:
    """Whether journald is behind a stream. Source: systemd.exec(5), ``$JOURNAL_STREAM``."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):
        return str(record.msg)  # placeholders and arguments don't fit


def _shown(value: object) -> object:
    """Returns what is written of a value: bounded, and a type's name where it isn't plain."""
    if value is None or isinstance(value, (bool, float)):
        return value if value == value and abs(value or 0) != float("inf") else str(value)
    if isinstance(value, int):
        return int(value) if abs(value) < 10**_MAX_DIGITS else "a large number"
    if not isinstance(value, str):
        return type(value).__name__
    return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "…"


def _error(error: BaseException) -> dict[str, object]:
    told: dict[str, object] = {"kind": type(error).__name__}
    if isinstance(error, (AgentError, SigningError)):
        return {**told, "message": _shown(str(error))}
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {**told, "places": [_shown(place) for place in places]}
