"""Changing one section of a model.yaml as text, so that its author's comments stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from edge_agent import yaml_subset
from edge_agent.errors import DescriptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOP_KEY = re.compile(r"^([A-Za-z_]+)[ \t]*:", re.MULTILINE)


def to_yaml(value: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a model.yaml, in block style: one top-level key a line."""
    return "".join(_section(key, one) for key, one in value.items()).encode()


def _section(key: str, value: Any) -> str:
    import yaml

    # None: what holds only scalars is written on one line; but not the outermost mapping.
    style = None if isinstance(value, dict | list) else False
    text: str = yaml.safe_dump(
        {key: value}, sort_keys=False, allow_unicode=True, default_flow_style=style, width=100
    )
    return text


def replace(data: bytes, key: str, value: Any) -> bytes:
    """Replaces a top-level section of a model.yaml, or adds it at the end.

    Args:
        data: The file; its mapping is written in block style, one top-level key a line.
        key: The section.
        value: Its new content; None removes it.

    Returns:
        The file with everything else as it was, byte for byte.

    Raises:
        DescriptionError: The file can't be changed this way.
    """
    before, _ = yaml_subset.load(data)
    if not isinstance(before, dict):
        raise DescriptionError("must be a mapping")
    text = data.decode("utf-8")
    made = (_without(text, key) if value is None else _with(text, key, value)).encode()
    wanted = {k: v for k, v in before.items() if k != key} | ({} if value is None else {key: value})
    try:
        after = yaml_subset.load(made)[0]
    except DescriptionError:
        after = None
    if after != _plain(wanted):
        raise DescriptionError(
            f"the section {key!r} can't be replaced in this style",
            hint="write one top-level key a line, as `edge-agent bundle init` does",
        )
    return made


def _with(text: str, key: str, value: Any) -> str:
    section = to_yaml({key: value}).decode()
    span = _span(text, key)
    if span is None:
        return text.rstrip("\n") + "\n\n" + section
    start, end = span
    return text[:start] + section + text[end:]


def _without(text: str, key: str) -> str:
    span = _span(text, key)
    return text if span is None else text[: span[0]] + text[span[1] :]


def _span(text: str, key: str) -> tuple[int, int] | None:
    """Returns where a section begins and ends; what stands between it and the next one isn't it."""
    keys = list(_TOP_KEY.finditer(text))
    place = next((index for index, one in enumerate(keys) if one[1] == key), None)
    if place is None:
        return None
    start = keys[place].start()
    end = keys[place + 1].start() if place + 1 < len(keys) else len(text)
    return start, start + _own_length(text[start:end])


def _own_length(section: str) -> int:
    """Returns the length without the comments and blank lines that lead to what follows."""
    lines = section.splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()
    return sum(map(len, lines))


def _plain(value: Any) -> Any:
    """Returns a value as YAML gives it back: tuples are lists."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
