"""A profile's file: strict TOML, whose errors name the file and the key."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_profiles.errors import ProfileError
from edge_profiles.profile import (
    ENGINES,
    NATIVE,
    PRECISIONS,
    SLOW,
    UNSUPPORTED,
    DeviceProfile,
)

if TYPE_CHECKING:
    from edge_profiles.profile import Support

MAX_FILE_BYTES: Final = 16 * 1024
ARCHITECTURES: Final = ("aarch64", "riscv64", "x86_64", "any")
_MAX_TEXT: Final = 128
_MAX_ITEMS: Final = 64
_MAX_KERNEL_PART: Final = 999
_BOUNDS: Final = {
    "threads": (0, 1024),
    "min_available_mib": (0, 1 << 20),
    "max_memory_percent": (1, 100),
    "max_latency_ms": (1, 600_000),
}
_OPTIONAL: Final = ("compatible", "models")
_REQUIRED: Final = ("title", "arch", "engines", "min_kernel", "precisions", *_BOUNDS)


def is_name(name: str) -> bool:
    """Whether a profile can have this name: lower-case letters, digits and inner hyphens."""
    letters = name.replace("-", "")
    plain = letters.isascii() and letters.isalnum() and letters == letters.lower()
    return plain and name[0].isalpha() and not name.endswith("-") and len(name) <= 64


def read_file(path: Path) -> str:
    """Reads a profile's file; a pipe or a device is refused, never waited for.

    Raises:
        ProfileError: It can't be read, is too large, or isn't UTF-8.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ProfileError("is not a regular file", path=str(path))
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ProfileError(f"is larger than {MAX_FILE_BYTES} bytes", path=str(path))
        return data.decode("utf-8")
    except OSError as error:
        raise ProfileError(f"can't be read: {error.strerror}", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise ProfileError("is not UTF-8", path=str(path)) from error


def parse(text: str, path: Path) -> DeviceProfile:
    """Reads the text of a profile; its name is that of the file.

    Raises:
        ProfileError: A wrong name, TOML or key; a value of the wrong type or out of bounds.
    """
    try:
        return _profile(path.name.removesuffix(".toml"), _document(text))
    except _Wrong as wrong:
        raise ProfileError(
            str(wrong), path=str(path), hint="what a profile holds: docs/DEVICES.md"
        ) from wrong


class _Wrong(Exception):
    """What is wrong, without the file."""


def _document(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Wrong(f"is not valid TOML: {error}") from error


def _profile(name: str, document: dict[str, Any]) -> DeviceProfile:
    if not is_name(name):
        raise _Wrong(f"{name!r} is no name for a profile: lower-case letters, digits and hyphens")
    _fields(document, "", _REQUIRED, _OPTIONAL)
    arch = _text(document, "arch")
    if arch not in ARCHITECTURES:
        raise _Wrong(f"arch must be one of {', '.join(ARCHITECTURES)}")
    return DeviceProfile(
        name=name,
        title=_text(document, "title"),
        arch=arch,
        compatible=_texts(document.get("compatible", []), "compatible"),
        models=_texts(document.get("models", []), "models"),
        engines=_engines(document["engines"]),
        min_kernel=_version(_text(document, "min_kernel")),
        precisions=_precisions(document["precisions"]),
        **{key: _number(document[key], key, bounds) for key, bounds in _BOUNDS.items()},
    )


def _fields(
    value: Any, place: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    """Checks that a table has the keys that it must have, and no other."""
    if not isinstance(value, dict):
        raise _Wrong(f"{place.rstrip('.')} must be a table")
    for key in value:
        if key not in (*required, *optional):
            known = ", ".join(sorted((*required, *optional)))
            raise _Wrong(f"unknown key {(place + key)[:_MAX_TEXT]!r}; known are {known}")
    for key in required:
        if key not in value:
            raise _Wrong(f"lacks the key {place}{key}")


def _text(document: dict[str, Any], key: str) -> str:
    value = document[key]
    if not _is_text(value):
        raise _Wrong(f"{key} must be one printable line of at most {_MAX_TEXT} characters")
    text: str = value
    return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_TEXT and value.isprintable()


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MAX_ITEMS or not all(map(_is_text, value)):
        raise _Wrong(
            f"{key} must be a list of at most {_MAX_ITEMS} printable strings of at most "
            f"{_MAX_TEXT} characters"
        )
    return tuple(value)


def _number(value: Any, key: str, bounds: tuple[int, int]) -> int:
    low, high = bounds
    if type(value) is not int or not low <= value <= high:  # `true` is an int to Python
        raise _Wrong(f"{key} must be a whole number from {low} to {high}")
    return value


def _engines(value: Any) -> tuple[str, ...]:
    engines = _texts(value, "engines")
    if not engines or len(set(engines)) < len(engines) or not set(engines) <= set(ENGINES):
        raise _Wrong(f"engines must be a list of {', '.join(ENGINES)}, each at most once")
    return engines


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    for part in (major, minor):
        if not (part.isascii() and part.isdigit() and len(part) <= len(str(_MAX_KERNEL_PART))):
            raise _Wrong('min_kernel must be a version like "5.10"')
    return int(major), int(minor)


def _precisions(value: Any) -> dict[str, dict[str, Support]]:
    _fields(value, "precisions.", ENGINES)
    return {engine: _row(value[engine], f"precisions.{engine}.") for engine in ENGINES}


def _row(value: Any, place: str) -> dict[str, Support]:
    _fields(value, place, PRECISIONS)
    return {precision: _support(value[precision], place + precision) for precision in PRECISIONS}


def _support(value: Any, key: str) -> Support:
    if isinstance(value, list) and value:
        return _texts(value, key)
    if isinstance(value, str) and value in (NATIVE, SLOW, UNSUPPORTED):
        return value
    raise _Wrong(
        f"{key} must be {NATIVE}, {SLOW} or {UNSUPPORTED}, or a list of CPU features of which "
        "native speed needs one"
    )
