"""A small, safe subset of YAML with the line of every value.

Accepted: mappings with string keys, sequences and scalars of the YAML 1.2 core schema. Refused:
aliases and anchors (so nothing can expand), tags, several documents, duplicate keys, deep nesting.

Source: YAML 1.2.2, section 10.3 (core schema).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from edge_agent.errors import DescriptionError

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 16

_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_WORDS: Final[dict[str, Any]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Lines = dict[str, int]


def load(data: bytes) -> tuple[Any, Lines]:
    """Parses one document.

    Args:
        data: UTF-8 text, at most 64 KiB.

    Returns:
        The plain value (dict, list, str, int, float, bool, None) and the 1-based line of each
        value under its path, written as msgspec writes it (``$.inputs[0].name``).

    Raises:
        DescriptionError: For anything outside the subset; it names the line.
    """
    if len(data) > MAX_BYTES:
        raise DescriptionError(f"is {len(data)} bytes, the limit is {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DescriptionError(f"is not UTF-8 text: {error.reason}") from error
    builder = _Builder()
    try:
        value = builder.document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark, last = error.problem_mark, text.rstrip("\n").count("\n")
        line = min(mark.line, last) + 1 if mark else None
        raise DescriptionError(f"is not valid YAML: {error.problem}", line=line) from error
    except yaml.YAMLError as error:
        raise DescriptionError(f"is not valid YAML: {error}".splitlines()[0]) from error
    return value, builder.lines


class _Builder:
    """Builds values from parser events, so that nothing is expanded before it is checked."""

    def __init__(self) -> None:
        self.lines: Lines = {}

    def document(self, events: Iterator[Any]) -> Any:
        value: Any = None
        seen = False
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if seen:
                    raise DescriptionError("holds more than one document", line=_line(event))
                seen = True
                value = self._node(next(events), events, "$", 0)
        if not seen:
            raise DescriptionError("is empty")
        return value

    def _node(self, event: Any, events: Iterator[Any], path: str, depth: int) -> Any:
        line = _line(event)
        self.lines[path] = line
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise DescriptionError("aliases and anchors are not allowed", line=line)
        if event.tag is not None:
            raise DescriptionError(f"the tag {event.tag!r} is not allowed", line=line)
        if depth > MAX_DEPTH:
            raise DescriptionError(f"is nested deeper than {MAX_DEPTH} levels", line=line)
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path, depth)
        return self._mapping(events, path, depth)

    def _sequence(self, events: Iterator[Any], path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, events, f"{path}[{len(items)}]", depth + 1))
        return items

    def _mapping(self, events: Iterator[Any], path: str, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line = _line(event)
            key = self._node(event, events, path + "{key}", depth + 1)
            if not isinstance(key, str):
                raise DescriptionError(f"the key {key!r} is not a string", line=line)
            if key in items:
                raise DescriptionError(f"the key {key!r} stands here twice", line=line)
            place = f"{path}.{key}"
            items[key] = self._node(next(events), events, place, depth + 1)
            self.lines[place] = line
        self.lines.pop(path + "{key}", None)
        return items


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _finite(text, event)
    return text


def _finite(text: str, event: Any) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise DescriptionError(f"the number {text} is too large", line=_line(event))
    return number
