"""Which of two sessions is faster on this machine: runs in turn, so that both see the same load."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_WARM_UPS: Final = 2
_MOST_RUNS: Final = 100
_LEAST_RUNS: Final = 5


@dataclass(frozen=True, slots=True)
class Latency:
    """Medians of interleaved runs with the same threads.

    Attributes:
        float_ms: Milliseconds of one inference of the float model.
        int8_ms: The same of the quantised one.
        runs: How many of each were measured.
        threads: Threads of the engine.
    """

    float_ms: float
    int8_ms: float
    runs: int
    threads: int

    @property
    def is_slower(self) -> bool:
        """Whether eight bits are the slower ones here."""
        return self.int8_ms > self.float_ms


def compare(
    float_run: Callable[[], object],
    int8_run: Callable[[], object],
    threads: int,
    budget_s: float = 2.0,
) -> Latency:
    """Measures two models.

    Args:
        float_run: Runs the float model once.
        int8_run: Runs the quantised one once.
        threads: Threads of both, for the report.
        budget_s: After this time no further run begins, once there are five.
    """
    both = float_run, int8_run
    taken_ms: tuple[list[float], list[float]] = ([], [])
    for run in both * _WARM_UPS:
        run()
    end = perf_counter() + budget_s
    while len(taken_ms[0]) < _LEAST_RUNS or (
        len(taken_ms[0]) < _MOST_RUNS and perf_counter() < end
    ):
        for run, times in zip(both, taken_ms, strict=True):
            start = perf_counter()
            run()
            times.append((perf_counter() - start) * 1e3)
    return Latency(median(taken_ms[0]), median(taken_ms[1]), len(taken_ms[0]), threads)
