"""SPDX license expressions: their grammar, not the list of licenses."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"\s*(\(|\)|[A-Za-z0-9.+-]+)")
_REFERENCE: Final = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*\+?")
_MAX_DEPTH: Final = 20


def is_expression(text: str) -> bool:
    """Tells whether a text has the form of an SPDX license expression that stands by itself.

    What names a license of another document (``DocumentRef-…:``) doesn't: a bundle has no other.

    Source: SPDX 2.3, annex D.2, "ABNF".
    """
    tokens = _tokens(text)
    if not tokens:
        return False
    try:
        return not _expression(tokens, 0)
    except (ValueError, IndexError):
        return False


def references(text: str) -> list[str]:
    """Returns the names in an expression that stand for licenses outside SPDX's list."""
    return sorted({one for one in _tokens(text) or [] if _REFERENCE.fullmatch(one)})


def _tokens(text: str) -> list[str] | None:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        found.append(match[1])
        at = match.end()
    return found


def _expression(tokens: list[str], depth: int) -> list[str]:
    """Reads an expression and returns the tokens after it."""
    rest = _simple(tokens, depth)
    while rest and rest[0] in ("AND", "OR"):
        rest = _simple(rest[1:], depth)
    return rest


def _simple(tokens: list[str], depth: int) -> list[str]:
    if tokens[0] == "(" and depth < _MAX_DEPTH:
        rest = _expression(tokens[1:], depth + 1)
        if rest[0] != ")":
            raise ValueError(rest[0])
        return rest[1:]
    if not _is_license(tokens[0]):
        raise ValueError(tokens[0])
    if len(tokens) > 2 and tokens[1] == "WITH" and _is_license(tokens[2]):
        return tokens[3:]
    return tokens[1:]


def _is_license(token: str) -> bool:
    if token in ("AND", "OR", "WITH"):
        return False
    return bool(_REFERENCE.fullmatch(token) or _ID.fullmatch(token))
