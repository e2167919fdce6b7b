"""The parser of model.yaml: bytes in, a checked `ModelDescription` or an error with a line out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from edge_agent import description_rules, yaml_subset
from edge_agent.description import PATTERN_WORDS, ModelDescription
from edge_agent.errors import DescriptionError

HOLE: Final = "???"


def holes(value: Any, path: str = "$") -> Iterator[str]:
    """Yields the paths of what `bundle init` couldn't know and nobody has filled in yet.

    Args:
        value: What `yaml_subset.load` returned.
        path: Where it stands.
    """
    if value == HOLE:
        yield path
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from holes(one, f"{path}.{key}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from holes(one, f"{path}[{index}]")


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
        raise _hole(value, lines) or located(str(error), value, lines)[0] from error
    problem = description_rules.first_problem(described)
    if problem is not None:
        raise DescriptionError(
            f"{problem.place}: {problem.message}", line=nearest_line(problem.path, lines)
        )
    return described


def _hole(value: Any, lines: Mapping[str, int]) -> DescriptionError | None:
    path = next(holes(value), None)
    if path is None:
        return None
    return DescriptionError(
        f"{path.removeprefix('$.')} is a hole",
        line=nearest_line(path, lines),
        hint=f"write what belongs there instead of {HOLE}; edge-agent bundle lint lists them all",
    )


# msgspec's texts; a test pins them. One that is worded otherwise is passed on as it is, still with
# its line. A path holds only names of this format; the rest may hold anything.
_AT = re.compile(r" - at `(?:key` in `)?(\$[\w.\[\]]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex (.*)", re.DOTALL)
_CHOICE = re.compile(r"Invalid (?:enum )?value '(.*)'", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[([0-9]+)\]")
_SHOWN_SIGNS = 60


def located(text: str, value: Any, lines: Mapping[str, int]) -> tuple[DescriptionError, str]:
    """Turns msgspec's "what - at `$.path`" into an error with a line.

    Args:
        text: What msgspec says.
        value: What it was given.
        lines: The line of each path.

    Returns:
        The error, and the path that it is about.
    """
    from edge_signing.errors import printable

    if not isinstance(value, dict):
        return DescriptionError("must be a mapping", line=nearest_line("$", lines)), "$"
    top = _UNKNOWN.fullmatch(text)
    # A hostile key may look like a path.
    at = None if top and top[1] in value else _AT.search(text)
    message, path = (text[: at.start()], at[1].replace("[...]", "")) if at else (text, "$")
    hint = None
    if unknown := _UNKNOWN.fullmatch(message):
        hint = _choice_hint(unknown[1], _known_keys(path, value))
        path, message = f"{path}.{unknown[1]}", "unknown key"
    elif pattern := _PATTERN.fullmatch(message):
        message = _pattern_words(pattern[1], _at(path, value)) or message
    elif choice := _CHOICE.fullmatch(message):
        allowed = _allowed(path)
        hint = _choice_hint(choice[1], allowed, listed=False)
        message += f": allowed are {', '.join(allowed)}" if allowed else ""
    if path == "$.version":
        hint = 'a semantic version has three numbers and stands in quotes if YAML needs it: "1.0.0"'
    place = path.removeprefix("$.").removeprefix("$")
    prefix = f"{place}: " if place else ""
    line = nearest_line(path, lines)
    return DescriptionError(printable(prefix + message), line=line, hint=hint), path


def _pattern_words(shown: str, value: Any) -> str | None:
    """Says what a value had to look like, None where the pattern isn't one of this format."""
    words = next((words for one, words in PATTERN_WORDS.items() if repr(one) == shown), None)
    if words is None:
        return None
    if not isinstance(value, str):
        return f"is not {words}"
    return f"{value[:_SHOWN_SIGNS]!r} is not {words}"


def _choice_hint(given: str, known: Iterable[str], listed: bool = True) -> str | None:
    from difflib import get_close_matches

    known = list(known)
    close = get_close_matches(given[:_SHOWN_SIGNS], known, 1)
    parts = [f"did you mean {close[0]}?"] if close else []
    if known and listed:
        parts.append(f"known here are {', '.join(known)}")
    return " ".join(parts) or None


def _at(path: str, value: Any) -> Any:
    """Returns what stands at a path, None where nothing does."""
    for name, index in _STEP.findall(path):
        try:
            value = value[name] if name else value[int(index)]
        except (LookupError, TypeError):
            return None
    return value


def _known_keys(path: str, value: Any) -> list[str]:
    """Returns the keys of the mapping at a path; of several kinds of mapping, the chosen one's."""
    from msgspec import inspect

    from edge_agent.formats import kinds

    found = [kind for kind in kinds(ModelDescription, path) if isinstance(kind, inspect.StructType)]
    here = _at(path, value)
    keys: list[str] = []
    for kind in found:
        if kind.tag_field and isinstance(here, dict) and here.get(kind.tag_field) != kind.tag:
            continue
        keys += [kind.tag_field] if kind.tag_field else []
        keys += [field.encode_name for field in kind.fields]
    return keys


def _allowed(path: str) -> list[str]:
    """Returns the values that are allowed at a path, empty where there is no list of them."""
    from msgspec import inspect

    from edge_agent.formats import kinds

    here = kinds(ModelDescription, path)
    listed = [one for kind in here if isinstance(kind, inspect.LiteralType)
              for one in kind.values]  # fmt: skip
    parent, _, name = path.rpartition(".")
    tags = [kind.tag for kind in kinds(ModelDescription, parent)
            if isinstance(kind, inspect.StructType) and kind.tag_field == name]  # fmt: skip
    return [str(one) for one in listed or tags]


def nearest_line(path: str, lines: Mapping[str, int]) -> int | None:
    """Returns the line of a path, or else of what it lies in; None where that has none."""
    while path not in lines and path != "$":
        path = path[: max(path.rfind("."), path.rfind("["), 1)]
    return lines.get(path)
