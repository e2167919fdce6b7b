"""JSON without the package ``json``, whose import costs a third of a thin client's time.

These are the same C functions that it uses, with its defaults.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Defaults:
    """How ``json.JSONDecoder`` reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def decode(text: str) -> Any:
    """Reads one JSON document, with nothing around it.

    Raises:
        ValueError: It isn't one.
    """
    scan: Any = make_scanner
    try:
        value, end = scan(_Defaults)(text, 0)
    except (StopIteration, RecursionError):
        raise ValueError("is not JSON") from None
    if end != len(text):
        raise ValueError("is more than one JSON document")
    return value


def encode(value: object) -> str:
    """Writes a value on one line.

    Raises:
        TypeError: It holds something that JSON has no form for.
    """
    write = make_encoder(
        None, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True
    )
    return "".join(write(value, 0))


def _refuse(value: object) -> Any:
    raise TypeError(f"JSON has no form for a {type(value).__name__}")
