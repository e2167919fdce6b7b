"""What a format allows at a place, in words: for what msgspec refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.inspect import (
    BoolType,
    DictType,
    FloatType,
    IntType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    TupleType,
    UnionType,
    VarTupleType,
    type_info,
)

from edge_signing.errors import printable

# msgspec's texts; tests pin them. A rule of the format's own has other words, and keeps them.
_AT: Final = re.compile(r" - at `(key` in `)?(\$[\w.\[\]]*)`$")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_REFUSED: Final = ("Expected ", "Invalid ")
_BARE: Final = re.compile(r"Expected `str.*`, got `(int|float|bool)`")
_STEP: Final = re.compile(r"\.(\w+)|\[([0-9]+|\.\.\.)\]")
_SHOWN_SIGNS: Final = 60
_NAMES: Final[dict[type, str]] = {
    BoolType: "true or false",
    IntType: "a whole number",
    FloatType: "a number",
    StrType: "a text",
    VarTupleType: "a list",
    DictType: "a table",
    StructType: "a table",
}


class Complaint(Struct, frozen=True):
    """What is wrong with a document.

    Attributes:
        place: Where, such as ``tcp.port`` or ``models[0]``; empty for the whole. NAME stands for
            any key.
        message: What is wrong there, and what is allowed.
        needs_quotes: Whether a number or truth value is there in place of text.
    """

    place: str
    message: str
    needs_quotes: bool = False


def complaint(text: str, form: Any, value: Any, words: Mapping[str, str]) -> Complaint:
    """Puts what msgspec says in words.

    Args:
        text: The message of its ``ValidationError``.
        form: The type that it was to convert to.
        value: What it was given.
        words: What the patterns of the format take, for people.
    """
    top = _UNKNOWN.fullmatch(text)
    # A hostile key may look like a path.
    at = None if top and isinstance(value, dict) and top[1] in value else _AT.search(text)
    message, path = (text[: at.start()], at[2]) if at else (text, "$")
    found = kinds(form, path)
    if unknown := _UNKNOWN.fullmatch(message):
        message = f"unknown key {unknown[1][:_SHOWN_SIGNS]!r}; known are {', '.join(_keys(found))}"
    elif missing := _MISSING.fullmatch(message):
        message = f"the key {missing[1]!r} is missing"
    elif at and at[1]:
        message = _of_key(found, _at(path, value), words)
    elif message.startswith(_REFUSED):
        message = f"must be {_any_of(found, words)}{_not(path, value)}"
    place = path.removeprefix("$").removeprefix(".").replace("[...]", ".NAME")
    return Complaint(place, printable(message), _BARE.match(text) is not None)


def kinds(form: Any, path: str) -> list[Any]:
    """Returns msgspec's descriptions of what may stand at a path; none where the format ends.

    Args:
        form: The type of the whole.
        path: As msgspec writes it: ``$.models[0].name``; ``[...]`` is any key of a mapping.
    """
    found = list(_plain(type_info(form)))
    for name, index in _STEP.findall(path):
        found = [
            plain
            for kind in found
            for inner in _inside(kind, name, index)
            for plain in _plain(inner)
        ]
    return found


def _plain(kind: Any) -> Iterator[Any]:
    if isinstance(kind, Metadata):
        yield from _plain(kind.type)
    elif isinstance(kind, UnionType):
        for one in kind.types:
            yield from _plain(one)
    else:
        yield kind


def _inside(kind: Any, name: str, index: str) -> list[Any]:
    if isinstance(kind, StructType):
        return [field.type for field in kind.fields if field.encode_name == name]
    if isinstance(kind, DictType):
        return [kind.value_type]
    if isinstance(kind, VarTupleType):
        return [kind.item_type]
    if isinstance(kind, TupleType):
        return list(kind.item_types[int(index or 0) :][:1])
    return []


def _keys(found: Iterable[Any]) -> list[str]:
    return [
        one.encode_name for kind in found if isinstance(kind, StructType) for one in kind.fields
    ]


def _at(path: str, value: Any) -> Any:
    """Returns what stands at a path, which was followed to a refusal there."""
    for name, index in _STEP.findall(path):
        value = value[name] if name else value[int(index)]
    return value


def _not(path: str, value: Any) -> str:
    """Says what is there, where that is short and the path leads to it."""
    given = None if "[...]" in path else _at(path, value)
    if isinstance(given, str):
        return f", not {given[:_SHOWN_SIGNS]!r}"
    return f", not {given}" if isinstance(given, int | float) else ""


def _of_key(found: Iterable[Any], mapping: Mapping[str, Any], words: Mapping[str, str]) -> str:
    """Says which key is wrong, which msgspec doesn't, and what it must be."""
    key = next(kind.key_type for kind in found if isinstance(kind, DictType))
    given = next(one for one in mapping if not _fits(key, one))
    return f"the name {given[:_SHOWN_SIGNS]!r} must be {_words(key, words)}"


def _fits(kind: Any, text: str) -> bool:
    if isinstance(kind, LiteralType):
        return text in kind.values
    least, most = kind.min_length or 0, kind.max_length or len(text)
    return least <= len(text) <= most and bool(re.search(kind.pattern or "", text))


def _any_of(found: Iterable[Any], words: Mapping[str, str]) -> str:
    return " or ".join(_words(kind, words) for kind in found if not isinstance(kind, NoneType))


def _words(kind: Any, words: Mapping[str, str]) -> str:
    """Says what a kind of value takes."""
    if isinstance(kind, LiteralType):
        shown = ", ".join(str(one) for one in kind.values)
        return f"one of {shown}" if len(kind.values) > 1 else shown
    if isinstance(kind, IntType | FloatType):
        return f"{_NAMES[type(kind)]} from {kind.ge} to {kind.le}"
    if isinstance(kind, StrType) and kind.pattern:
        return f"{words[kind.pattern]}; {kind.max_length} characters at most"
    least, most = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
    unit = "characters" if isinstance(kind, StrType) else "entries"
    span = f" of {least or 0} to {most} {unit}" if most else ""
    return _NAMES[type(kind)] + span
