"""Model files are looked at by native parsers, which hostile ones crash: in a process of its own.

LiteRT 2.3 ends with SIGSEGV on some TensorFlow Lite files in which a few bytes were changed (about
one in a hundred of them), and ONNX Runtime takes whatever memory a graph asks for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from edge_agent import child_process
from edge_agent.authoring.lint.findings import Finding
from edge_agent.errors import UnavailableError

TIMEOUT_S: Final = 120
MODULE: Final = "edge_agent.authoring.lint.child"


class Job(Struct, frozen=True):
    """What the child looks at.

    Attributes:
        folder: The folder of the project, or of a bare model file.
        file: The model file in it.
        engine: The engine that reads it.
        described: Whether the folder has a model.yaml that breaks no rule.
        answers: Whether the golden input can be tried.
        noise: Inputs to measure the answer to noise on, by name: (dtype, shape).
        description: The model.yaml for that, where the folder has none.
        max_image_bytes: The largest image that is taken.
        max_image_pixels: The largest one in pixels.
    """

    folder: str
    file: str
    engine: str
    described: bool = False
    answers: bool = False
    noise: Mapping[str, tuple[str, tuple[int, ...]]] = {}
    description: str = ""
    max_image_bytes: int = 64 * 1024 * 1024
    max_image_pixels: int = 64_000_000


@dataclass(slots=True)
class Seen:
    """What the child saw.

    Attributes:
        findings: What is wrong with the file.
        facts: What it is: ``quantised``, ``probabilities``.
        notes: What could not be looked at here, in a sentence.
    """

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def look(job: Job, timeout_s: float = TIMEOUT_S) -> Seen:
    """Looks at a model file in a child process with limits of time and memory.

    Args:
        job: The file, and what is wanted.
        timeout_s: How long it may take.

    Returns:
        What was seen; a crash, or a child that doesn't end, is a finding.

    Raises:
        UnavailableError: The child can't be started.
    """
    ended = child_process.run(MODULE, child_process.pack(job), timeout_s)
    seen, stage = _read(ended.answer)
    if ended.problem is None:
        return seen
    if stage is None:
        words = f": {ended.said}" if ended.said else ""
        raise UnavailableError(f"the process that looks at model files {ended.problem}{words}")
    code = "engine-hangs" if ended.was_stopped else "engine-crashes"
    said = f"in {stage}, the process {ended.problem}: no device should load this file"
    seen.findings.append(Finding(code, job.file, said))
    return seen


def _read(answer: bytes) -> tuple[Seen, str | None]:
    """Reads the child's lines; the last of one that died may be cut off."""
    seen, stage = Seen(), None
    for line in answer.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            break
        if "stage" in said:
            stage = said["stage"]
        elif "finding" in said:
            seen.findings.append(msgspec.convert(said["finding"], Finding))
        elif "note" in said:
            seen.notes.append(said["note"])
        else:
            seen.facts |= said["facts"]
    return seen, stage
