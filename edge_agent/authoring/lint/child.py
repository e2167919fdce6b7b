"""The child process of `lint.isolated`: a job on standard input, lines of JSON as the answer."""

from __future__ import annotations

import json
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import child_process
from edge_agent.authoring.lint import engine_run, onnx_file, tflite_file
from edge_agent.authoring.lint.findings import Finding, one_line
from edge_agent.authoring.lint.isolated import Job
from edge_agent.authoring.project import external_names
from edge_agent.bundles import MAX_MODEL_BYTES
from edge_agent.errors import AgentError, BadInputError, EngineUnavailableError
from edge_profiles.detect import memory_limit_bytes
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKS: dict[str, Callable[..., Any]] = {"onnx": onnx_file.look, "tflite": tflite_file.look}
# A sound model needs what the libraries take, and its bytes as they are read, parsed and loaded.
_LIBRARY_BYTES: Final = 2 * 1024**3
_COPIES: Final = 6


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
    request, answer = child_process.attach()
    tell = Teller(answer)
    job = child_process.unpack(request, Job)
    os.chdir(job.folder)  # the package onnx takes no folder whose name isn't UTF-8
    job = msgspec.structs.replace(job, folder=".")
    child_process.limit(resource.RLIMIT_AS, _memory_limit(job))
    try:
        if job.noise or _LOOKS[job.engine](job, tell):
            engine_run.look(job, tell)
    except EngineUnavailableError as error:
        tell.note(f"{job.file} can't be tried here: {error.message}")
    except AgentError as error:
        tell.finding(Finding("engine-refuses", job.file, one_line(error.message)))
    except MemoryError:
        tell.finding(Finding("engine-refuses", job.file, "needs more memory than it is given here"))
    except Exception as error:  # noqa: BLE001 - what a binding makes of a damaged file is anything
        said = one_line(f"{type(error).__name__}: {error}")
        tell.finding(Finding("engine-refuses", job.file, f"can't be looked at: {said}"))
    os._exit(0)


def _memory_limit(job: Job) -> int:
    """Returns how much address space may be taken, in bytes: a quarter of the memory, or more."""
    path = Path(job.folder, job.file)
    data = [path]
    if job.engine == "onnx":
        with suppress(BadInputError, SigningError):  # told when it is read
            data += [Path(job.folder, name) for name in external_names(path, job.file)]
    size = sum(min(one.stat().st_size, MAX_MODEL_BYTES) for one in data if one.is_file())
    return max((memory_limit_bytes() or 0) // 4, _LIBRARY_BYTES + _COPIES * size)


if __name__ == "__main__":
    main()
