"""The parser of model.yaml: bytes in, a checked `ModelDescription` or an error with a line out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from edge_agent import description_rules, yaml_subset
from edge_agent.description import ModelDescription
from edge_agent.errors import DescriptionError


def parse(data: bytes) -> ModelDescription:
    """Parses and checks a model.yaml.

    Args:
        data: The file's bytes, at most 64 KiB.

    Raises:
        DescriptionError: It breaks a rule; the error names the line and the place.
    """
    value, lines = yaml_subset.load(data)
    try:
        described = msgspec.convert(value, ModelDescription)
    except msgspec.ValidationError as error:
        raise _located(str(error), value, lines) from error
    problem = description_rules.first_problem(described)
    if problem is not None:
        raise DescriptionError(
            f"{problem.place}: {problem.message}", line=_nearest_line(problem.path, lines)
        )
    return described


# msgspec's texts. A path holds only names of this format; the rest may hold anything.
_AT = re.compile(r" - at `(?:key` in `)?(\$[\w.\[\]]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def _located(text: str, value: Any, lines: Mapping[str, int]) -> DescriptionError:
    """Turns msgspec's "what - at `$.path`" into an error with a line."""
    from edge_signing.errors import printable

    top = _UNKNOWN.fullmatch(text)
    # A hostile key may look like a path.
    at = None if top and isinstance(value, dict) and top[1] in value else _AT.search(text)
    message, path = (text[: at.start()], at[1].replace("[...]", "")) if at else (text, "$")
    unknown = _UNKNOWN.fullmatch(message)
    if unknown:
        path, message = f"{path}.{unknown[1]}", "unknown key"
    place = path.removeprefix("$.").removeprefix("$")
    hint = None
    if path == "$.version":
        hint = 'a semantic version has three numbers and stands in quotes if YAML needs it: "1.0.0"'
    if not isinstance(value, dict):
        message, place = "must be a mapping", ""
    prefix = f"{place}: " if place else ""
    return DescriptionError(printable(prefix + message), line=_nearest_line(path, lines), hint=hint)


def _nearest_line(path: str, lines: Mapping[str, int]) -> int | None:
    """Returns the line of a path, or else of what it lies in."""
    while path not in lines and path != "$":
        path = path[: max(path.rfind("."), path.rfind("["), 1)]
    return lines.get(path)
