"""Is it worth waiting for more rows?"""

from __future__ import annotations

import math
from typing import Final

_ALPHA: Final = 1 / 8
_LONGEST_GAP_S: Final = 0.1
_HALF_A_ROW: Final = 0.5


class Arrivals:
    """How jobs that may run together have been coming in.

    Callers that wait for their answers before they ask again are all here at times: so the most
    rows that were in the air at once lately tell whether anybody is missing. A lone caller never
    waits for itself. The gap before an arrival counts from the last arrival or answer: before an
    answer, whoever waits for it can't ask.

    Attributes:
        in_air: Rows that wait or run.
    """

    def __init__(self) -> None:
        self.in_air = 0
        self._most = 0
        self._expected = 0.0
        self._gap_s = _LONGEST_GAP_S
        self._last = -math.inf
        self._held_since: float | None = None

    def arrived(self, rows: int, now: float) -> None:
        """A job came in."""
        gap_s = now - self._last
        if gap_s > _LONGEST_GAP_S:
            gap_s = _LONGEST_GAP_S
        self._gap_s += (gap_s - self._gap_s) * _ALPHA
        self._last = now
        self.in_air += rows
        if self.in_air > self._most:
            self._most = self.in_air

    def left(self, rows: int, now: float) -> None:
        """A job got its answer, or was given up."""
        self.in_air -= rows
        self._last = now

    def formed(self) -> None:
        """A batch was made."""
        self._held_since = None
        fall = self._expected - self._most
        self._expected -= fall if fall < 0 else _ALPHA * fall
        self._most = self.in_air

    def wait_until(self, saved_s: float, max_wait_s: float, now: float) -> float:
        """Returns until when a free worker should wait for the next one; the past for not at all.

        Args:
            saved_s: Time of a worker that is saved when one job less needs a run of its own.
            max_wait_s: Longest wait, from the first time that this was asked for a batch.
            now: The time.
        """
        present = self.in_air + _HALF_A_ROW
        if present >= self._most and present >= self._expected:
            return -math.inf
        if self._gap_s >= min(saved_s, max_wait_s):
            return -math.inf
        if self._held_since is None:
            self._held_since = now
        return min(self._last + self._gap_s, self._held_since + max_wait_s)
