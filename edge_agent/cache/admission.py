"""Which inputs are worth a full digest: the cache must cost next to nothing where none repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

GENERATION: Final = 8192
PATIENCE: Final = 64
PROBE_ONE_OF: Final = 16


class Doorkeeper:
    """Remembers the fingerprints of late inputs, in two generations, so that it never grows."""

    def __init__(self) -> None:
        self._current: set[int] = set()
        self._previous: set[int] = set()

    def has_seen(self, fingerprint: int) -> bool:
        """Says whether an input of this fingerprint came lately, and remembers this one."""
        if fingerprint in self._current:
            return True
        seen = fingerprint in self._previous
        if len(self._current) >= GENERATION:
            self._previous, self._current = self._current, set()
        self._current.add(fingerprint)
        return seen

    def remember(self, fingerprints: Iterable[int]) -> None:
        """Takes in what was seen before the process started, the newest first."""
        for one in fingerprints:
            if len(self._previous) >= GENERATION:
                return
            self._previous.add(one)


class Patience:
    """Whether full digests are worth their cost.

    Samples of slowly changing sensor data look the same though the data differ. Where full digests
    keep finding nothing, only one of 16 is computed, until one finds something.

    Attributes:
        stepped_aside: How often one was not computed.
    """

    def __init__(self) -> None:
        self._fruitless = 0
        self._turn = 0
        self.stepped_aside = 0

    def lasts(self) -> bool:
        """Says whether to compute the next one."""
        if self._fruitless < PATIENCE:
            return True
        self._turn = (self._turn + 1) % PROBE_ONE_OF
        if self._turn == 0:
            return True
        self.stepped_aside += 1
        return False

    def learn(self, found: bool) -> None:
        """Takes in whether one found anything."""
        self._fruitless = 0 if found else self._fruitless + 1
