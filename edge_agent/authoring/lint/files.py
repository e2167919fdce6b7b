"""Checks of the files of a project: there, regular, of sensible size and name, and no others."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from edge_agent import tensors
from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.project import SIGNATURES
from edge_agent.authoring.recipe import RECIPE_FILE, Recipe, read_recipe
from edge_agent.bundles import DESCRIPTION_FILE, MAX_MODEL_BYTES, MAX_PROBE_BYTES
from edge_agent.description import Classification
from edge_agent.errors import ConfigError
from edge_agent.labels import MAX_LABELS_BYTES
from edge_signing.errors import SigningError
from edge_signing.limits import DEFAULT_LIMITS
from edge_signing.names import MAX_NAME_BYTES, check_distinct, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_agent.description import ModelDescription

_MAX_LISTED: Final = 20
_MIB: Final = 1024 * 1024
MADE: Final = ("sbom.spdx.json", "reports")


def recipe_of(folder: Path) -> tuple[Recipe, list[Finding]]:
    """Reads build.toml, and looks whether what it names is here."""
    try:
        recipe = read_recipe(folder)
    except ConfigError as error:
        return Recipe(), [Finding("recipe-invalid", RECIPE_FILE, error.message, hint=error.hint)]
    named = [("reference", recipe.reference), ("inputs", recipe.inputs)]
    return recipe, [
        Finding("recipe-missing", RECIPE_FILE, f"{key}: there is no {value!r} here")
        for key, value in named
        if value and not os.path.exists(folder / value)  # Path's raises where a name is too long
    ]


def check_named(folder: Path, names: dict[str, int]) -> Iterator[Finding]:
    """Checks the files that go into a bundle.

    Args:
        folder: The project.
        names: The largest size of each that is taken, by name.
    """
    total = 0
    for name, at_most in names.items():
        try:
            check_name(name)
        except SigningError as error:
            yield Finding("file-name", DESCRIPTION_FILE, f"{name}: {error.message}")
            continue
        found, size = _check_file(folder, name, at_most)
        total += size
        if found:
            yield found
    try:
        check_distinct(sorted(names))
    except SigningError as error:
        yield Finding("file-name", DESCRIPTION_FILE, str(error))
    if total > DEFAULT_LIMITS.total_bytes:
        yield Finding("file-too-large", DESCRIPTION_FILE, f"the files make {total >> 20} MiB")


def _check_file(folder: Path, name: str, at_most: int) -> tuple[Finding | None, int]:
    path = folder
    for component in name.split("/"):
        path /= component
        if path.is_symlink():
            return Finding("file-link", name, "is, or lies behind, a symbolic link"), 0
    try:
        facts = path.lstat()
    except OSError as error:
        code = "file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable"
        return Finding(code, name, f"can't be read: {error.strerror}"), 0
    if not stat.S_ISREG(facts.st_mode):
        return Finding("file-unreadable", name, "is no regular file"), 0
    if facts.st_size == 0:
        return Finding("file-empty", name, "is empty"), 0
    if facts.st_size > at_most:
        said = f"has {facts.st_size} bytes, at most {at_most} are taken"
        return Finding("file-too-large", name, said), facts.st_size
    if not os.access(path, os.R_OK):
        return Finding("file-unreadable", name, "can't be read: Permission denied"), 0
    return None, facts.st_size


def limits_of(description: ModelDescription, recipe: Recipe) -> dict[str, int]:
    """Returns the files that a description and a recipe name, with the largest size of each."""
    limits = {part.file: MAX_MODEL_BYTES for part in description.engines}
    rule, golden = description.postprocess, description.golden
    if isinstance(rule, Classification):
        limits[rule.labels] = MAX_LABELS_BYTES
    if golden:
        probes = [*golden.tensors.values(), *(one.file for one in golden.outputs)]
        limits |= dict.fromkeys(probes, min(MAX_PROBE_BYTES, tensors.MAX_BYTES + 4096))
        limits |= {golden.image: MAX_PROBE_BYTES} if golden.image else {}
    return limits | dict.fromkeys(recipe.include, DEFAULT_LIMITS.total_bytes)


def check_unlisted(folder: Path, recipe: Recipe, known: set[str]) -> Iterator[Finding]:
    """Warns of files that won't be in the bundle though they lie in its project."""
    own = {DESCRIPTION_FILE, RECIPE_FILE} | known
    passed = (SIGNATURES, os.path.normpath(recipe.inputs or SIGNATURES), *MADE)
    strays = []
    for root, folders, files in os.walk(folder):
        at = os.path.relpath(root, folder)
        prefix = "" if at == "." else f"{at}/"
        folders[:] = sorted(one for one in folders if one[0] != "." and prefix + one not in passed)
        strays += [prefix + one for one in sorted(files) if one[0] != "."]
        if len(prefix) > MAX_NAME_BYTES:  # nothing below could be in a bundle
            strays += [prefix + one for one in folders]
            folders.clear()
        if len(strays) > DEFAULT_LIMITS.files:
            break
    strays = [one for one in strays if one not in own and one not in passed]
    for name in strays[:_MAX_LISTED]:
        yield Finding(
            "file-unlisted",
            name,
            "nothing names it, so the bundle won't have it",
            hint=f"name it under include in {RECIPE_FILE}, or remove it",
        )
    if len(strays) > _MAX_LISTED:
        left = len(strays) - _MAX_LISTED
        yield Finding("file-unlisted", ".", f"{left} further files are named by nothing")


def check_memory(folder: Path, description: ModelDescription) -> Iterator[Finding]:
    """Warns of weights that alone take more than the contract promises."""
    promised = description.contract.memory_mib
    for part in description.engines:
        path = folder / part.file
        size = path.stat().st_size if path.is_file() else 0
        if promised and size > promised * _MIB:
            said = f"has {size >> 20} MiB, contract.memory_mib promises {promised}"
            yield Finding("memory-contract", part.file, said)
