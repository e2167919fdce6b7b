"""Patterns of bundle names: `*` stands for any characters, but never for a `/`."""

from __future__ import annotations

import re

from edge_signing.errors import KeyringError
from edge_signing.names import MAX_BUNDLE_NAME

_PATTERN = re.compile(r"[a-z0-9._*-]+(?:/[a-z0-9._*-]+)*")


def check_pattern(pattern: str, where: str) -> None:
    """Checks a pattern.

    Args:
        pattern: The pattern.
        where: Its place, for the error.

    Raises:
        KeyringError: It holds more than the characters of bundle names and `*`, has `**` or an
            empty part, or is too long.
    """
    if len(pattern) > MAX_BUNDLE_NAME or not _PATTERN.fullmatch(pattern):
        raise KeyringError(
            f"the pattern {pattern[:MAX_BUNDLE_NAME]!r} is not allowed",
            path=where,
            hint="use the characters of bundle names, and * for any run of them: acme/*",
        )
    if "**" in pattern:
        raise KeyringError(
            f"the pattern {pattern!r} has '**', which would not cross a '/' either",
            path=where,
            hint="write one * for each part of the name: acme/*/*",
        )


def matches(pattern: str, name: str) -> bool:
    """Tells whether a pattern matches a bundle's name.

    Args:
        pattern: A pattern that passed `check_pattern`.
        name: The bundle's name.

    Returns:
        Whether each part of the name, between its slashes, matches that part of the pattern.
    """
    wanted, given = pattern.split("/"), name.split("/")
    return len(wanted) == len(given) and all(map(_part_matches, wanted, given))


def _part_matches(pattern: str, part: str) -> bool:
    """Each literal piece is taken at its first place: no backtracking, so linear time."""
    first, *middle = pattern.split("*")
    if not middle:
        return pattern == part
    last = middle.pop()
    if len(part) < len(first) + len(last) or not part.startswith(first):
        return False
    if not part.endswith(last):
        return False
    position, end = len(first), len(part) - len(last)
    for piece in middle:
        found = part.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
