"""Order statistics of measured times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


_Milliseconds = Annotated[float, Meta(ge=0)]


class Latency(Struct, frozen=True):
    """Milliseconds of many runs of one stage.

    Attributes:
        p50: Median.
        p95: 95th percentile.
        p99: 99th percentile; with fewer than 100 runs it is the slowest one.
        runs: How many there were.
    """

    p50: _Milliseconds
    p95: _Milliseconds
    p99: _Milliseconds
    runs: Annotated[int, Meta(ge=1)]


def latency(times_ms: Sequence[float]) -> Latency:
    """Returns the percentiles of at least one time, by nearest rank.

    Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), definition 1: it
    gives times that were really measured.
    """
    ordered = sorted(times_ms)
    p50, p95, p99 = (_nearest(ordered, share) for share in (0.50, 0.95, 0.99))
    return Latency(p50, p95, p99, len(ordered))


def _nearest(ordered: Sequence[float], share: float) -> float:
    return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 4)
