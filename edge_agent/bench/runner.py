"""Trials of every engine in turn, each in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from edge_agent.bench.report import EngineReport
from edge_agent.bench.statistics import latency
from edge_agent.bench.trial import COLD_STAGES, WARM_STAGES, Memory, Trial, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# -P: the folder that the command runs in lends no module.
COMMAND: Final[tuple[str, ...]] = ("-P", "-m", "edge_agent.bench.child")
_WARM_UP: Final = 3


class Plan(Struct, frozen=True):
    """What is to be measured.

    Attributes:
        model: As `subjects.open_subject` takes it.
        engines: The engines, in the order of the report.
        sample: File of one sample input, None for the golden input, or else a blank one.
        trials: Fresh processes for each engine; each gives one cold start.
        runs: Warm answers of each engine, spread over its processes.
        timeout_s: The longest that one process may take, in seconds.
    """

    model: str
    engines: tuple[str, ...]
    sample: str | None
    trials: int
    runs: int
    timeout_s: float


def run(plan: Plan, progress: Callable[[int, int], None] | None = None) -> list[EngineReport]:
    """Measures every engine.

    The engines take turns, so that what else this machine does meets each of them alike; one that
    fails isn't tried again.

    Args:
        plan: What is to be measured.
        progress: Called with trials done and trials in all.
    """
    trials: dict[str, list[Trial]] = {engine: [] for engine in plan.engines}
    total = plan.trials * len(plan.engines)
    for turn in range(plan.trials):
        for index, engine in enumerate(plan.engines):
            if not any(trial.error for trial in trials[engine]):
                trials[engine].append(_trial(plan, engine))
            if progress:
                progress(turn * len(plan.engines) + index + 1, total)
    return [summary(engine, made) for engine, made in trials.items()]


def summary(engine: str, trials: Sequence[Trial]) -> EngineReport:
    """Puts the trials of one engine together."""
    failed = next((trial for trial in trials if trial.error), None)
    if failed is not None:
        return EngineReport(engine, error=failed.error)
    first = trials[0]
    memory = [trial.memory for trial in trials if trial.memory]
    return EngineReport(
        engine,
        version=first.version,
        threads=first.threads,
        sample=first.sample,
        wrong=next((trial.wrong for trial in trials if trial.wrong), None),
        cold_ms={s: latency([trial.cold_ms[s] for trial in trials]) for s in COLD_STAGES},
        warm_ms={s: latency(_pooled(trials, s)) for s in WARM_STAGES},
        memory_mib=_largest(memory) if memory else None,
    )


def _pooled(trials: Sequence[Trial], stage: str) -> list[float]:
    return [ms for trial in trials for ms in trial.warm_ms[stage]]


def _largest(memory: Sequence[Memory]) -> Memory:
    """Returns the trial that needed most: a promise must hold for it too."""
    worst = max(memory, key=lambda one: one.session)
    return Memory(round(worst.before, 2), round(worst.loaded, 2), round(worst.peak, 2))


def _trial(plan: Plan, engine: str) -> Trial:
    runs = -(-plan.runs // plan.trials)
    request = TrialRequest(plan.model, engine, plan.sample, _WARM_UP, runs, monotonic_ns())
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and a fixed module
            [sys.executable, *COMMAND],
            input=msgspec.json.encode(request),
            capture_output=True,
            timeout=plan.timeout_s,
        )
    except subprocess.TimeoutExpired:
        return Trial(error=f"took longer than {plan.timeout_s:g} s, and was stopped")
    return _answer(done)


def _answer(done: subprocess.CompletedProcess[bytes]) -> Trial:
    try:
        return msgspec.json.decode(done.stdout, type=Trial)
    except msgspec.MsgspecError:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Trial(error=f"the engine's process {_ending(done.returncode)}: {_last(said)}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _last(lines: Sequence[str]) -> str:
    return lines[-1] if lines else "it said nothing"
