"""How long a model's runs take."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

_WINDOW: Final = 128
_ALPHA: Final = 1 / 16
_RECENT_S: Final = 1.0
_LEAST_VARIANCE: Final = 0.1
_FADING: Final = 0.995


class RunTimes:
    """Measured times of one model's runs, from hand-over to outcome.

    A run of n rows takes about ``fixed + n * slope``; both come from moving averages.

    Args:
        estimate_s: What one row is expected to take, until runs were measured; 0 for unknown.
    """

    def __init__(self, estimate_s: float) -> None:
        self.mean_s = estimate_s
        self._rows = 1.0
        self._variance = 0.0
        self._covariance = 0.0
        self._slope_s: float | None = None
        self._slowest_row_s = estimate_s
        self._runs = 0
        self._row_window: deque[float] = deque(maxlen=_WINDOW)
        self._observed_at = -math.inf

    def is_measured(self) -> bool:
        """Whether there was a run."""
        return self._runs > 0

    def observe(self, rows: int, run_s: float, now: float) -> None:
        """Takes the time of one run."""
        if not self._runs and (rows == 1 or not self.mean_s):
            self.mean_s, self._rows = run_s, float(rows)
        # The first ones count as much as what was estimated: so much is known of a single row.
        alpha = max(_ALPHA, 1 / (self._runs + 2))
        more_rows, longer_s = rows - self._rows, run_s - self.mean_s
        self._rows += alpha * more_rows
        self.mean_s += alpha * longer_s
        self._variance = (1 - alpha) * (self._variance + alpha * more_rows * more_rows)
        self._covariance = (1 - alpha) * (self._covariance + alpha * more_rows * longer_s)
        if self._variance > _LEAST_VARIANCE:
            self._slope_s = max(0.0, self._covariance / self._variance)
        row_s = run_s / rows
        self._slowest_row_s = max(row_s, self._slowest_row_s * _FADING)
        self._runs += 1
        self._row_window.append(row_s)
        self._observed_at = now

    def row_s(self) -> float:
        """Returns the time that a row takes of a worker's."""
        return self.mean_s / self._rows

    def expected_s(self, rows: int) -> float:
        """Returns the expected time of a run: as if rows saved nothing, until that is known."""
        return max(0.0, self.mean_s + self._slope() * (rows - self._rows))

    def saved_s(self) -> float:
        """Returns the time that is saved by two runs becoming one; all of it, until known."""
        if self._slope_s is None:
            return self.mean_s
        return self.mean_s - self._slope() * self._rows

    def fastest_s(self, now: float) -> float:
        """Returns what no run is faster than; 0 unless that was seen just now.

        A row's part of a larger run is certainly less than a run of its own. What isn't run isn't
        measured: an old figure would refuse work for ever.
        """
        return min(self._recent(now), default=0.0)

    def usual_s(self, now: float) -> float:
        """Returns what half of the runs are faster than, by the row as `fastest_s`."""
        rows = sorted(self._recent(now))
        return rows[len(rows) // 2] if rows else 0.0

    def _recent(self, now: float) -> Sequence[float]:
        return self._row_window if now - self._observed_at < _RECENT_S else ()

    def slowest_s(self, rows: int) -> float:
        """Returns the longest time that so many rows have taken, or should take; 0 for unknown."""
        return self._slowest_row_s * rows

    def _slope(self) -> float:
        slope = self.row_s()
        return slope if self._slope_s is None else min(self._slope_s, slope)
