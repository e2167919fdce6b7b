"""Checks of model.yaml: holes, every section that breaks a rule, what had better be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import description_rules, model_yaml, yaml_subset
from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.project import read_file
from edge_agent.authoring.spdx_license import is_expression
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import SCHEMA, ModelDescription
from edge_agent.errors import BadInputError, DescriptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# What stands in for a section that breaks a rule, so that the others can be looked at.
_SOUND: Final[dict[str, Any]] = {
    "schema": SCHEMA,
    "name": "a",
    "version": "1.0.0",
    "task": "a",
    "inputs": [{"name": "a", "dtype": "float32", "shape": []}],
    "outputs": [{"name": "a", "dtype": "float32", "shape": []}],
    "engines": [{"engine": "onnx", "file": "a.onnx"}],
    "postprocess": {"kind": "raw"},
}


@dataclass(frozen=True, slots=True)
class Described:
    """A model.yaml that was looked at.

    Attributes:
        findings: What is wrong with it.
        description: It; None where it breaks a rule.
        value: Its plain content; None where it is no YAML.
    """

    findings: list[Finding]
    description: ModelDescription | None
    value: dict[str, Any] | None


def check(folder: Path) -> Described:
    """Checks the model.yaml of a folder."""
    try:
        data = read_file(folder, DESCRIPTION_FILE, yaml_subset.MAX_BYTES + 1)
        value, lines = yaml_subset.load(data)
        if not isinstance(value, dict):
            raise DescriptionError("must be a mapping", line=1)
    except DescriptionError as error:
        return Described([_finding(error)], None, None)
    except BadInputError as error:
        missing = not (folder / DESCRIPTION_FILE).is_file()
        code = "file-missing" if missing else "file-unreadable"
        return Described([Finding(code, DESCRIPTION_FILE, error.message)], None, None)
    findings = list(_holes(value, lines))
    errors = [_finding(error) for error in _broken(value, lines)]
    if findings or errors:
        return Described(findings + errors, None, value)
    described = msgspec.convert(value, ModelDescription)
    for problem in description_rules.problems(described):
        place = model_yaml.nearest_line(problem.path, lines)
        text = f"{problem.place}: {problem.message}"
        findings.append(Finding("description-invalid", DESCRIPTION_FILE, text, place))
    if findings:
        return Described(findings, None, value)
    return Described(list(_advice(value, lines)), described, value)


def _holes(value: Any, lines: Mapping[str, int]) -> Iterator[Finding]:
    for path in model_yaml.holes(value):
        yield Finding(
            "hole",
            DESCRIPTION_FILE,
            f"{path.removeprefix('$.')} is a hole",
            model_yaml.nearest_line(path, lines),
            f"write what belongs there instead of {model_yaml.HOLE}",
        )


def _broken(value: dict[str, Any], lines: Mapping[str, int]) -> Iterator[DescriptionError]:
    """Yields one error for each section that breaks a rule of its own."""
    rest = dict(value)
    for key in value:
        if any(model_yaml.holes(value[key])):
            _repair(rest, key)
    while True:
        try:
            msgspec.convert(rest, ModelDescription)
        except msgspec.ValidationError as error:
            located, path = model_yaml.located(str(error), rest, lines)
            yield located
            key = path.removeprefix("$").removeprefix(".").partition(".")[0].partition("[")[0]
            missing = next((one for one in _SOUND if one not in rest), "")
            if not _repair(rest, key or missing):
                return
        else:
            return


def _repair(rest: dict[str, Any], key: str) -> bool:
    """Puts something sound in the place of a section; False where that changes nothing."""
    if key in _SOUND and rest.get(key) != _SOUND[key]:
        rest[key] = _SOUND[key]
        return True
    return key not in _SOUND and rest.pop(key, None) is not None


def _advice(value: dict[str, Any], lines: Mapping[str, int]) -> Iterator[Finding]:
    sample = "IMAGE" if "preprocess" in value else "--input NAME=FILE"
    if "golden" not in value:
        yield Finding(
            "golden-missing",
            DESCRIPTION_FILE,
            "has no golden input, so no device can check its answers",
            hint=f"edge-agent bundle golden PROJECT {sample} makes one",
        )
    if "contract" not in value:
        yield Finding(
            "contract-missing",
            DESCRIPTION_FILE,
            f"has no contract: {', '.join(_promises(value))}",
        )
    if value.get("license") is None:
        yield Finding("license-missing", DESCRIPTION_FILE, "says nothing of the weights' license")
    elif not is_expression(value["license"]):
        yield Finding(
            "license-syntax",
            DESCRIPTION_FILE,
            f"{value['license']!r} is no SPDX license expression that needs no other document",
            lines.get("$.license"),
        )


def _promises(value: dict[str, Any]) -> Iterator[str]:
    """Yields the keys that a contract can have for this model."""
    yield from ("latency_ms", "memory_mib")
    if value["postprocess"]["kind"] == "classification":
        yield "min_confidence"
    yield from ("leave_device", "drift")


def _finding(error: DescriptionError) -> Finding:
    return Finding("description-invalid", DESCRIPTION_FILE, error.message, error.line, error.hint)
