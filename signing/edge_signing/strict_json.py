"""JSON from strangers: one meaning, bounded cost, one error.

The standard parser keeps the last of duplicate keys, takes `NaN`, lets lone surrogates through and
fails on deep nesting with `RecursionError`; two parsers could then read two things out of the same
signed bytes. Here all of that is one error.
"""

from __future__ import annotations

import binascii
import json
from typing import Any, NoReturn


class StrictJSONError(ValueError):
    """The bytes are not JSON of the strict kind; modules turn this into their own error."""


def parse_object(data: bytes, max_bytes: int, max_tokens: int) -> dict[str, Any]:
    """Parses one JSON object.

    Args:
        data: The document in UTF-8.
        max_bytes: Refuse more bytes than this.
        max_tokens: Refuse more of `{`, `[` and `,` than this (those within strings count too):
            8 MiB of `[],[],` would otherwise become 180 MB of lists.

    Returns:
        The object.

    Raises:
        StrictJSONError: Too large, not UTF-8, not JSON, not an object, a duplicate key, a number
            that is not finite or absurdly long, a lone surrogate, or nesting too deep.

    Source:
        RFC 8259 section 4 (names SHOULD be unique), section 8.2 (lone surrogates); RFC 7493.
    """
    if len(data) > max_bytes:
        raise StrictJSONError(f"has {len(data)} bytes; at most {max_bytes} are allowed")
    if sum(data.count(token) for token in (b"{", b"[", b",")) > max_tokens:
        raise StrictJSONError("has too many values")
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant
        )
        if b"\\" in data and "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except StrictJSONError:
        raise
    except UnicodeError as error:
        raise StrictJSONError("is not UTF-8, or has a lone surrogate") from error
    except RecursionError as error:
        raise StrictJSONError("is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError, and integers past Python's digit limit
        raise StrictJSONError(f"is not JSON ({str(error)[:120]})") from error
    if not isinstance(value, dict):
        raise StrictJSONError("is not a JSON object")
    return value


def canonical(value: object) -> bytes:
    """Serialises a value so that equal values give equal bytes.

    Args:
        value: Objects, lists, strings, integers, booleans, null.

    Returns:
        UTF-8 with sorted keys and no white space.
    """
    text = json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return text.encode("utf-8")


def decode_base64(text: object) -> bytes:
    """Decodes standard base64 that has exactly one spelling.

    Args:
        text: What should be a base64 string.

    Returns:
        The bytes.

    Raises:
        StrictJSONError: Not a string, a character outside the standard alphabet, padding missing,
            or unused bits that are not zero.

    Source:
        RFC 4648 sections 3.2, 3.3 and 3.5.
    """
    if not isinstance(text, str):
        raise StrictJSONError("base64 must be a string")
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise StrictJSONError(f"is not base64 ({error})") from error
    if encode_base64(data) != text:
        raise StrictJSONError("is not canonical base64")
    return data


def encode_base64(data: bytes) -> str:
    """Returns standard base64 with padding and without line breaks (RFC 4648 section 4)."""
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise StrictJSONError("has a duplicate key")
    return result


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise StrictJSONError("has a number that is not finite")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise StrictJSONError(f"has a number that is not finite ({name})")
