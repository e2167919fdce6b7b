"""`bundle lint`: all checks, in one order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.lint import description, files, isolated, labels
from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.project import external_names
from edge_agent.authoring.source_files import ENGINES
from edge_agent.bundles import MAX_MODEL_BYTES
from edge_agent.errors import BadInputError, ModelNotFoundError
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_agent.app import Agent
    from edge_agent.authoring.lint.isolated import Seen
    from edge_agent.authoring.recipe import Recipe
    from edge_agent.description import ModelDescription


@dataclass(frozen=True, slots=True)
class Report:
    """What `bundle lint` found.

    Attributes:
        findings: Everything, errors and warnings, in the order of the checks.
        notes: What could not be checked here, in a sentence each.
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def errors(self) -> list[Finding]:
        """The findings with which no bundle is built."""
        return [one for one in self.findings if one.level == "error"]


def lint(agent: Agent, folder: Path, home: Path | None = None) -> Report:
    """Checks a project, or the folder of a bundle; nothing in it is changed.

    Args:
        agent: The agent.
        folder: The folder.
        home: The project, where the folder is a copy of what goes into its bundle.

    Raises:
        ModelNotFoundError: There is no such folder.
        BadInputError: It is a file.
        EngineUnavailableError: It has an ONNX file, and the package `onnx` isn't installed.
    """
    if folder.is_file():
        raise BadInputError(
            "is a file, not a folder",
            path=str(folder),
            hint="lint the project, or the bundle's folder",
        )
    if not folder.is_dir():
        raise ModelNotFoundError(
            "is no project", path=str(folder), hint="make one: edge-agent bundle init MODEL"
        )
    home = home or folder
    recipe, findings = files.recipe_of(home)
    described = description.check(folder)
    findings += described.findings
    if described.description is None:
        seen = _bare_models(agent, folder, described.value)
        return Report((*findings, *_findings(seen)), _notes(seen))
    findings += _files(folder, home, described.description, recipe)
    findings += labels.check(folder, described.description)
    bad = {one.path for one in findings if one.level == "error"}
    parts = [one.file for one in described.description.engines if one.file not in bad]
    answers = not any(one.level == "error" for one in findings)
    seen = {file: _look(agent, folder, file, True, answers) for file in parts}
    findings += _findings(seen)
    findings += _precision(described.description, seen)
    return Report(tuple(findings), _notes(seen))


def check_model(agent: Agent, path: Path) -> Seen:
    """Checks a bare model file."""
    return _look(agent, path.parent, path.name)


def _look(
    agent: Agent, folder: Path, file: str, described: bool = False, answers: bool = False
) -> Seen:
    engine = ENGINES[file[file.rindex(".") :].lower()]
    if engine == "onnx":
        onnx_graphs.package()  # an author without it is told so, not that nothing could be checked
    return isolated.look(
        isolated.Job(
            str(folder.resolve()),
            file,
            engine,
            described,
            answers,
            max_image_bytes=agent.limits.max_bytes,
            max_image_pixels=agent.limits.max_pixels,
        )
    )


def _bare_models(agent: Agent, folder: Path, value: object) -> dict[str, Seen]:
    """Looks at the model files that a model.yaml names which has faults of its own."""
    engines = value.get("engines") if isinstance(value, dict) else None
    named = [one.get("file") for one in engines or () if isinstance(one, dict)]
    seen = {}
    for file in named:
        if isinstance(file, str) and file[file.rfind(".") :].lower() in ENGINES:
            problems = list(files.check_named(folder, {file: MAX_MODEL_BYTES}))
            seen[file] = isolated.Seen(problems) if problems else _look(agent, folder, file)
    return seen


def _files(
    folder: Path, home: Path, described: ModelDescription, recipe: Recipe
) -> Iterator[Finding]:
    limits = files.limits_of(described, recipe)
    problems = list(files.check_named(folder, limits))
    yield from problems
    bad = {one.path for one in problems}
    models = [one.file for one in described.engines if one.engine == "onnx" and one.file not in bad]
    reference = [os.path.normpath(recipe.reference)] if recipe.reference else []
    known = {*limits, *reference}
    places = [(folder, file) for file in models] + [(home, file) for file in reference]
    for place, file in places:
        try:
            known |= external_names(place / file, file)
        except (BadInputError, SigningError):
            continue  # told where the file itself is looked at
    yield from files.check_unlisted(home, recipe, known)
    yield from files.check_memory(folder, described)


def _precision(described: ModelDescription, seen: dict[str, Seen]) -> Iterator[Finding]:
    """Warns where a file computes in floats that is told, or seems, to be INT8."""
    known = {file: one.facts.get("quantised") for file, one in seen.items()}
    claims = f"{described.name} {described.summary or ''}".lower()
    for file, quantised in known.items():
        if quantised is not False:
            continue
        others = [other for other, one in known.items() if one]
        if "int8" in f"{claims} {file.lower()}":
            yield Finding("engine-precision", file, "is told to be INT8 and computes in floats")
        elif others:
            yield Finding("engine-precision", file, f"computes in floats, {others[0]} in INT8")


def _findings(seen: dict[str, Seen]) -> list[Finding]:
    return [finding for one in seen.values() for finding in one.findings]


def _notes(seen: dict[str, Seen]) -> tuple[str, ...]:
    return tuple(note for one in seen.values() for note in one.notes)
