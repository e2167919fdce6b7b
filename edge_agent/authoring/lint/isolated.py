"""Model files are looked at by native parsers, which hostile ones crash: in a process of its own.

LiteRT 2.3 ends with SIGSEGV on some TensorFlow Lite files in which a few bytes were changed (about
one in a hundred of them), and ONNX Runtime takes whatever memory a graph asks for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import Struct

from edge_agent.authoring.lint.findings import Finding
from edge_agent.errors import UnavailableError

TIMEOUT_S: Final = 120
_MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024


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
    # -P: no file beside the model is imported.
    command = [sys.executable, "-P", "-m", "edge_agent.authoring.lint.child"]
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            answer, _ = child.communicate(msgspec.json.encode(job), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            answer, _ = child.communicate()
            return _ended(job, answer, "engine-hangs", f"takes longer than {timeout_s:g} s in")
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        return _ended(job, answer, "engine-crashes", f"ends with {_died(child.returncode)} in")
    return _read(answer)[0]


def memory_limit() -> int:
    """Returns how much address space the child may have: what the machine has, at least 4 GiB."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(physical, 4 * 1024**3)


def _ended(job: Job, answer: bytes, code: str, how: str) -> Seen:
    seen, stage = _read(answer)
    if stage is None:
        raise UnavailableError(f"the process that looks at model files {how} its start")
    seen.findings.append(
        Finding(code, job.file, f"the process {how} {stage}: no device should load this file")
    )
    return seen


def _died(code: int) -> str:
    if code >= 0:
        return f"the exit code {code}"
    named = {one.value: one.name for one in signal.Signals}
    return f"the signal {named.get(-code, -code)}"  # real-time signals have numbers only


def _read(answer: bytes) -> tuple[Seen, str | None]:
    """Reads the child's lines; the last of one that died may be cut off."""
    seen, stage = Seen(), None
    for line in answer[:_MAX_ANSWER_BYTES].splitlines():
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
