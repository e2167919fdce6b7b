"""Trials of every engine in turn, each in a process of its own."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent import child_process
from edge_agent.bench.report import Cold, EngineReport, Figures, Warm
from edge_agent.bench.statistics import latency
from edge_agent.bench.trial import Memory, Trial, TrialRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODULE: Final = "edge_agent.bench.child"
COLD_STAGES: Final = Cold.__struct_fields__
WARM_STAGES: Final = Warm.__struct_fields__
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
    total = plan.trials * len(trials)
    for turn in range(plan.trials):
        for index, (engine, made) in enumerate(trials.items()):
            if not any(trial.error for trial in made):
                made.append(_trial(plan, engine, _share(plan.runs, plan.trials, turn)))
            if progress:
                progress(turn * len(trials) + index + 1, total)
    return [summary(engine, made) for engine, made in trials.items()]


def summary(engine: str, trials: Sequence[Trial]) -> EngineReport:
    """Puts the trials of one engine together."""
    failed = next((trial for trial in trials if trial.error), None)
    if failed is not None:
        return EngineReport(engine, error=failed.error)
    memory = [trial.memory for trial in trials if trial.memory]
    figures = Figures(
        version=trials[0].version,
        threads=trials[0].threads,
        sample=trials[0].sample,
        wrong=next((trial.wrong for trial in trials if trial.wrong), None),
        cold_ms=Cold(*(latency([trial.cold_ms[s] for trial in trials]) for s in COLD_STAGES)),
        warm_ms=Warm(*(latency(_pooled(trials, s)) for s in WARM_STAGES)),
        memory_mib=_largest(memory) if memory else None,
    )
    return EngineReport(engine, figures)


def _pooled(trials: Sequence[Trial], stage: str) -> list[float]:
    return [ms for trial in trials for ms in trial.warm_ms[stage]]


def _largest(memory: Sequence[Memory]) -> Memory:
    """Returns the trial that needed most: a promise must hold for it too."""
    worst = max(memory, key=lambda one: one.session)
    return Memory(round(worst.before, 2), round(worst.loaded, 2), round(worst.peak, 2))


def _share(runs: int, trials: int, turn: int) -> int:
    """Returns how many of all runs fall to one trial."""
    return runs // trials + (turn < runs % trials)


def _trial(plan: Plan, engine: str, runs: int) -> Trial:
    request = TrialRequest(plan.model, engine, plan.sample, _WARM_UP, runs, monotonic_ns())
    ended = child_process.run(MODULE, child_process.pack(request), plan.timeout_s)
    try:
        return child_process.unpack(ended.answer, Trial)
    except ValueError:
        words = f": {ended.said}" if ended.said else ""
        return Trial(error=f"its process {ended.problem or 'gave no answer'}{words}")
