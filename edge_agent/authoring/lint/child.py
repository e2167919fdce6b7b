"""The child process of `lint.isolated`: a job on standard input, lines of JSON as the answer."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from edge_agent.authoring.lint import engine_run, onnx_file, tflite_file
from edge_agent.authoring.lint.findings import Finding, one_line
from edge_agent.authoring.lint.isolated import TIMEOUT_S, Job, memory_limit
from edge_agent.errors import AgentError, EngineUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKS: dict[str, Callable[..., Any]] = {"onnx": onnx_file.look, "tflite": tflite_file.look}


class Teller:
    """Writes the answer, a line at a time, so that what was seen before a crash isn't lost."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._told: set[Finding] = set()
        self.errors = 0

    def stage(self, name: str) -> None:
        """Tells what comes next."""
        self._write({"stage": name})

    def finding(self, finding: Finding) -> None:
        """Tells a finding, once."""
        if finding in self._told:
            return
        self._told.add(finding)
        self.errors += finding.level == "error"
        self._write({"finding": msgspec.to_builtins(finding)})

    def note(self, text: str) -> None:
        """Tells what can't be looked at here."""
        self._write({"note": text})

    def facts(self, **facts: Any) -> None:
        """Tells what the file is."""
        self._write({"facts": facts})

    def _write(self, said: Any) -> None:
        data = json.dumps(said).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]


def main() -> None:
    """Does the job."""
    tell = Teller(os.dup(1))
    os.dup2(2, 1)  # whatever a native library prints is no part of the answer
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    limit = memory_limit()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = TIMEOUT_S * (os.cpu_count() or 1)  # where the parent was killed, nobody else stops it
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        if job.noise or _LOOKS[job.engine](job, tell):
            engine_run.look(job, tell)
    except EngineUnavailableError as error:
        tell.note(f"{job.file} can't be tried here: {error.message}")
    except AgentError as error:
        tell.finding(Finding("engine-refuses", job.file, one_line(error.message)))
    except MemoryError:
        tell.finding(Finding("engine-refuses", job.file, "needs more memory than there is"))
    except Exception as error:  # noqa: BLE001 - what a binding makes of a damaged file is anything
        said = one_line(f"{type(error).__name__}: {error}")
        tell.finding(Finding("engine-refuses", job.file, f"can't be looked at: {said}"))
    os._exit(0)


if __name__ == "__main__":
    main()
