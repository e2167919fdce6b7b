"""The verdict: measures held against the thresholds of the contract. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.description import Drift
    from edge_agent.drift.comparison import PairDifference
    from edge_agent.drift.metrics import Agreement

# The others have a smallest value that is allowed.
_UPPER: Final = ("relative_l2", "max_error", "lsb", "not_finite")


class Breach(Struct, frozen=True):
    """A measure beyond its threshold.

    Attributes:
        engine: Which engine, or two of them joined by ``/``.
        output: Which output.
        measure: ``relative_l2``, ``cosine``, ``max_error``, ``top1``, ``topk``, ``lsb``, or
            ``not_finite``: how many inputs were answered with NaN or infinity.
        value: What was measured; infinite where an answer holds a number that isn't finite.
        threshold: What the contract allows.
    """

    engine: str
    output: str
    measure: str
    value: float
    threshold: float

    def __str__(self) -> str:
        value, threshold = told_apart(self.value, self.threshold)
        sign = "above" if self.measure in _UPPER else "below"
        return f"{self.engine} {self.output}: {self.measure} {value} is {sign} {threshold}"


def told_apart(value: float, threshold: float) -> tuple[str, str]:
    """Returns both with four digits, or with so many that they differ where they do."""
    if not math.isfinite(value):
        return "not finite", f"{threshold:.4g}"
    shown = ((f"{value:.{n}g}", f"{threshold:.{n}g}") for n in range(4, 18))
    return next((pair for pair in shown if pair[0] != pair[1]), (f"{value:.4g}",) * 2)


class Limit(NamedTuple):
    """A measure with its threshold.

    Attributes:
        measure: As in `Breach`.
        value: What was measured, None where it can't be.
        threshold: What the contract allows, None where it says nothing.
    """

    measure: str
    value: float | None
    threshold: float | None

    @property
    def is_broken(self) -> bool:
        """Whether it doesn't hold; a value that isn't finite never does."""
        if self.value is None or self.threshold is None:
            return False
        if not math.isfinite(self.value):
            return True
        if self.measure in _UPPER:
            return self.value > self.threshold
        return self.value < self.threshold


def limits(agreement: Agreement, drift: Drift) -> tuple[Limit, ...]:
    """Returns the measures of one output, each with its threshold."""
    return (
        Limit("relative_l2", agreement.relative_l2, drift.max_relative_l2),
        Limit("cosine", agreement.cosine, drift.min_cosine),
        Limit("max_error", agreement.max_error, drift.max_error),
        Limit("top1", agreement.top1, drift.min_top1_agreement),
        Limit("topk", agreement.topk, drift.min_topk_agreement),
    )


def of_engine(
    engine: str, outputs: Mapping[str, Agreement], not_finite: Mapping[str, int], drift: Drift
) -> Iterator[Breach]:
    """Yields what one engine breaks.

    Args:
        engine: Its name.
        outputs: Its measures against the reference by output; empty without a reference.
        not_finite: By output, how many inputs it answered with NaN or infinity.
        drift: The thresholds.
    """
    for output, count in not_finite.items():
        yield from _broken(engine, output, (Limit("not_finite", count, 0),))
    for output, agreement in outputs.items():
        yield from _broken(engine, output, limits(agreement, drift))


def of_pair(pair: PairDifference, drift: Drift) -> Iterator[Breach]:
    """Yields what two engines break together: a distance in steps, where a step is known."""
    yield from _broken(
        "/".join(pair.engines), pair.output, (Limit("lsb", pair.lsb, drift.max_lsb),)
    )


def _broken(engine: str, output: str, found: tuple[Limit, ...]) -> Iterator[Breach]:
    for one in found:
        if one.is_broken and one.value is not None and one.threshold is not None:
            yield Breach(engine, output, one.measure, one.value, one.threshold)
