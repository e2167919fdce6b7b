"""Errors to exit codes and to words. The only place that knows exit codes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from edge_agent import errors
from edge_agent.cli import output
from edge_signing.errors import printable

OK: Final = 0
OTHER: Final = 1
USAGE: Final = 2
NOT_TRUSTED: Final = 3
BAD_INPUT: Final = 4
UNAVAILABLE: Final = 5
THRESHOLD: Final = 6
INTERRUPTED: Final = 130

ERROR_SCHEMA: Final = "edge-agent/error/v1"


def expected() -> tuple[type[Exception], ...]:
    """Returns the errors that are reported in a sentence; any other is a fault in the agent."""
    from edge_signing.errors import SigningError

    return errors.AgentError, SigningError, OSError, MemoryError


def exit_code(error: Exception) -> int:
    """Returns the exit code of an error, as docs/CLI.md lists them."""
    from edge_signing import errors as signing

    table: tuple[tuple[type[Exception], int], ...] = (
        (errors.ConfigError, USAGE),
        (errors.MismatchError, NOT_TRUSTED),
        (errors.BadInputError, BAD_INPUT),
        (errors.UnavailableError, UNAVAILABLE),
        (errors.ThresholdError, THRESHOLD),
        (signing.BundleUnreadable, BAD_INPUT),
        (signing.BundleInvalid, NOT_TRUSTED),
        (signing.NotTrusted, NOT_TRUSTED),
        (signing.KeyFileError, BAD_INPUT),
        (signing.KeyringError, USAGE),
    )
    return next((code for kind, code in table if isinstance(error, kind)), OTHER)


def sentence(error: Exception) -> str:
    """Returns what went wrong, with the place; control characters are made visible."""
    if isinstance(error, MemoryError):
        return "not enough memory"
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return printable(place + error.strerror)
    return printable(str(error))


def fault(error: BaseException) -> int:
    """Tells of an error that nobody expected, and returns the exit code."""
    output.notice(f"a fault in the agent: {type(error).__name__}: {error}")
    output.hint("please report it; with EDGE_AGENT_DEBUG=1 it shows where it happened")
    return OTHER


def as_json(error: Exception) -> dict[str, object]:
    """Returns the member ``error`` of JSON answers."""
    return {
        "kind": type(error).__name__,
        "exit_code": exit_code(error),
        "message": sentence(error),
        "hint": getattr(error, "hint", None),
    }


def report(error: Exception, as_json_document: bool) -> int:
    """Tells the user of an error and returns the exit code.

    Args:
        error: One of `expected`.
        as_json_document: Also print it as one JSON document on standard output. Whoever raises a
            `ThresholdError` has printed one already: that of the figures.
    """
    if as_json_document and not isinstance(error, errors.ThresholdError):
        with suppress(OSError):  # standard output may be what failed; the exit code tells as well
            output.document({"schema": ERROR_SCHEMA, "error": as_json(error)})
    output.notice(sentence(error))
    hint = getattr(error, "hint", None)
    if hint:
        output.hint(hint)
    return exit_code(error)
