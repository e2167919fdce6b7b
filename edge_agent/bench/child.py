"""The process of one trial: a `TrialRequest` on standard input, a `Trial` on standard output."""

from __future__ import annotations

import re
from pathlib import Path
from time import monotonic_ns, perf_counter
from typing import TYPE_CHECKING

from edge_agent import child_process
from edge_agent.bench.trial import Memory, Trial, TrialRequest

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.backends.base import Session
    from edge_agent.bundles import Contents
    from edge_agent.description import EngineFile
    from edge_agent.pipeline import Pipeline
    from edge_agent.types import Request


def main() -> None:
    """Runs the trial that standard input asks for."""
    request, answer = child_process.attach()
    trial = _tried(child_process.unpack(request, TrialRequest))
    with open(answer, "wb") as stream:
        stream.write(child_process.pack(trial))


def _tried(request: TrialRequest) -> Trial:
    from edge_agent.errors import AgentError
    from edge_signing.errors import SigningError, printable

    try:
        return run(request)
    except (AgentError, SigningError, OSError) as error:
        return Trial(error=printable(str(error)))
    except MemoryError:
        return Trial(error="not enough memory")


def run(request: TrialRequest) -> Trial:
    """Measures one engine from a cold start.

    Raises:
        AgentError: The model can't be loaded, or doesn't answer.
        edge_signing.errors.SigningError: It can't be trusted.
    """
    from edge_agent import config
    from edge_agent.app import Agent
    from edge_agent.authoring.subjects import open_subject

    started = monotonic_ns()
    agent = Agent(config.load(), lambda _: None)
    with open_subject(agent, request.model) as contents:
        opened = monotonic_ns()
        return _Run(agent, contents, request, started, opened).trial()


class _Run:
    """A model on its way from the disk to its last answer."""

    def __init__(
        self, agent: Agent, contents: Contents, request: TrialRequest, started: int, opened: int
    ) -> None:
        self._agent = agent
        self._contents = contents
        self._request = request
        self._started = started
        self._opened = opened

    def trial(self) -> Trial:
        part = _part(self._contents, self._request.engine)
        reading = perf_counter()
        asked, sample = _asked(self._agent, self._contents, self._request.sample)
        loading = perf_counter()
        version = self._agent.loader.backends[part.engine].status().version
        imported = perf_counter()
        before = _resident_mib()
        _forget_peak()
        importing = perf_counter()
        session = self._agent.loader.session(self._contents, part)
        pipeline = self._agent.loader.pipeline(self._contents)
        loaded = perf_counter()
        loaded_mib = _resident_mib()
        answering = perf_counter()
        answer = _Answer(pipeline, session, part, asked)
        answer.once()
        cold = {
            "start": (self._started - self._request.spawned_ns) / 1e6,
            "open": (self._opened - self._started) / 1e6,
            "read": (loading - reading) * 1e3,
            "load": (imported - loading + loaded - importing) * 1e3,
            "first": (perf_counter() - answering) * 1e3,
        }
        cold["total"] = sum(cold.values())
        wrong = _wrong(self._contents, pipeline, session, part)
        warm = answer.times(self._request.warm_up, self._request.runs)
        return Trial(
            cold_ms=cold,
            warm_ms=warm,
            memory=_memory(before, loaded_mib),
            sample=sample,
            wrong=wrong,
            threads=self._agent.loader.threads,
            version=version or "",
        )


class _Answer:
    """Answers one request again and again."""

    def __init__(
        self, pipeline: Pipeline, session: Session, part: EngineFile, request: Request
    ) -> None:
        self._pipeline = pipeline
        self._session = session
        self._part = part
        self._request = request

    def once(self) -> tuple[float, float, float, float]:
        """Answers once; returns the seconds of preparing, inferring, answering, and all three."""
        started = perf_counter()
        inputs = self._pipeline.prepare(self._request, self._part.layout)
        prepared = perf_counter()
        outputs = self._session.run(inputs)
        inferred = perf_counter()
        self._pipeline.answer(outputs, None)
        ended = perf_counter()
        return prepared - started, inferred - prepared, ended - inferred, ended - started

    def times(self, warm_up: int, runs: int) -> dict[str, list[float]]:
        """Answers many times; returns milliseconds of each counted run by stage."""
        for _ in range(warm_up):
            self.once()
        taken = [self.once() for _ in range(runs)]
        stages = ("prepare", "infer", "answer", "total")
        return {
            stage: [seconds * 1e3 for seconds in column]
            for stage, column in zip(stages, zip(*taken, strict=True), strict=True)
        }


def _wrong(
    contents: Contents, pipeline: Pipeline, session: Session, part: EngineFile
) -> str | None:
    """Says what is wrong with the answer to the golden input, whatever is measured."""
    from edge_agent import golden

    request = golden.request(contents)
    if request is None:
        return None
    outputs = session.run(pipeline.prepare(request, part.layout))
    return golden.difference(contents, pipeline.answer(outputs, 1), outputs)


def _part(contents: Contents, engine: str) -> EngineFile:
    from edge_agent.errors import EngineUnavailableError

    part = contents.description.engine(engine)
    if part is None:
        raise EngineUnavailableError(f"{contents.ref.name} has no file for the engine {engine}")
    return part


def _asked(agent: Agent, contents: Contents, sample: str | None) -> tuple[Request, str]:
    """Returns the request, and what it is called."""
    import numpy as np  # noqa: F401 - counted as reading, whatever is read

    from edge_agent import golden, samples
    from edge_agent.loading import blank_request
    from edge_signing.errors import printable

    if sample is not None:
        called = printable(Path(sample).name)
        return samples.request(contents, Path(sample), agent.limits), called
    probe = golden.request(contents)
    return (probe, "golden") if probe else (blank_request(contents), "blank")


def _memory(before: float | None, loaded: float | None) -> Memory | None:
    peak = _status_mib("VmHWM")
    if before is None or loaded is None or peak is None:
        return None
    return Memory(before, loaded, max(peak, loaded))


def _resident_mib() -> float | None:
    return _status_mib("VmRSS")


def _status_mib(key: str) -> float | None:
    """Returns a figure of /proc/self/status, as proc(5) has it."""
    try:
        found = re.search(rf"^{key}:\s*([0-9]+) kB$", _status(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / 1024 if found else None


def _status() -> str:
    return Path("/proc/self/status").read_text(encoding="utf-8", errors="replace")


def _forget_peak() -> None:
    """Sets the peak back to what is resident now, where the kernel lets us (proc(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return  # then the peak may be that of verifying; it is never too small


if __name__ == "__main__":
    main()
