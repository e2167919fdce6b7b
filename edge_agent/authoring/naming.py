"""What a new bundle is called."""

from __future__ import annotations

import re
from typing import Any, Final, get_type_hints

import msgspec

from edge_agent.description import BundleName, ModelDescription, Version
from edge_agent.errors import ConfigError

LOCAL: Final = "local/"
_TASK: Final = get_type_hints(ModelDescription, include_extras=True)["task"]
_NAME_HINT: Final = "lower-case letters, digits, '.', '_', '-', parts joined by /"


def slug(text: str) -> str:
    """Returns a text as one component of a bundle name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "model"


def bundle_name(given: str | None, stem: str) -> str:
    """Returns a bundle's name: the one given or the file's, below ``local/`` unless it has parts.

    Raises:
        ConfigError: It can't be one.
    """
    name = given or slug(stem)
    if "/" not in name:
        name = LOCAL + name
    check_name(name)
    return name


def check_name(name: str) -> None:
    """Checks a bundle's name.

    Raises:
        ConfigError: It can't be one.
    """
    _check(name, BundleName, "--name", _NAME_HINT)


def check_version(version: str) -> None:
    """Checks a version.

    Raises:
        ConfigError: It can't be one.
    """
    _check(version, Version, "--version", "three numbers, such as 1.0.0")


def check_task(task: str) -> None:
    """Checks a task.

    Raises:
        ConfigError: It can't be one.
    """
    hint = "lower-case letters, digits and '-', such as image-classification"
    _check(task, _TASK, "--task", hint)


def _check(value: str, kind: Any, option: str, hint: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{option} can't be {value!r}", hint=f"it is made of {hint}") from error
