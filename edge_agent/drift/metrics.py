"""Measures of how far answers lie from a reference, summed up input by input in float64."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.types import Scores, Tensor

_INFINITE = float("inf")


class Agreement(Struct, frozen=True):
    """How far the answers of one output lie from the reference, over all inputs.

    Attributes:
        relative_l2: ``|a - r| / |r|``, Euclidean, over all inputs together; 0 where both are zero,
            infinite where only the reference is, or where a number isn't finite (or its square
            isn't, in float64).
        cosine: Mean over the inputs of ``a·r / (|a| |r|)``; 1 where both are zero, 0 where only one
            is, -1 where a number isn't finite.
        max_error: Largest ``|a - r|`` of any element; infinite where a number isn't finite.
        top1: Share of inputs with the reference's best class, 0 to 1; None for no classifier.
        topk: Mean share of the reference's k best classes among the answer's k best; None as above.
        inputs: How many inputs there were.
    """

    relative_l2: float
    cosine: float
    max_error: float
    top1: float | None
    topk: float | None
    inputs: int


class Running:
    """The sums behind an `Agreement`; it keeps no tensor.

    Args:
        top_k: The k of top-k for an output of class scores; None for any other output.
    """

    def __init__(self, top_k: int | None = None) -> None:
        self._top_k = top_k
        self._inputs = 0
        self._error_squares = 0.0
        self._reference_squares = 0.0
        self._cosines = 0.0
        self._max_error = 0.0
        self._top1 = 0.0
        self._topk = 0.0

    def add(self, answer: Tensor, reference: Tensor) -> float:
        """Adds one input.

        Args:
            answer: Any shape, any numbers or truth values.
            reference: The same shape.

        Returns:
            The relative L2 error of this input alone.
        """
        a, r = answer.astype(np.float64).ravel(), reference.astype(np.float64).ravel()
        self._inputs += 1
        with np.errstate(over="ignore", invalid="ignore"):
            aa, rr, ar = _dot(a, a), _dot(r, r), _dot(a, r)
        if not np.isfinite((aa, rr, ar)).all():
            self._error_squares = self._max_error = _INFINITE
            self._cosines -= 1.0
            return _INFINITE
        self._cosines += _cosine(aa, rr, ar)
        if self._top_k is not None:
            self._top1 += kept_share(a, r, 1)
            self._topk += kept_share(a, r, self._top_k)
        gaps = _gaps(answer, reference, a, r)
        errors = _dot(gaps, gaps)
        self._error_squares += errors
        self._reference_squares += rr
        self._max_error = max(self._max_error, float(gaps.max(initial=0.0)))
        return _relative(errors, rr)

    def result(self) -> Agreement:
        """Returns the measures over what was added; at least one input must have been."""
        count = self._inputs
        is_ranked = self._top_k is not None
        return Agreement(
            relative_l2=_relative(self._error_squares, self._reference_squares),
            cosine=self._cosines / count,
            max_error=self._max_error,
            top1=self._top1 / count if is_ranked else None,
            topk=self._topk / count if is_ranked else None,
            inputs=count,
        )


def kept_share(a: Scores, r: Scores, k: int) -> float:
    """Returns which share of the k best of `r` is among the k best of `a`.

    Args:
        a: Scores, shape [classes].
        r: The same.
        k: At most all classes count. Of equal scores the lower index is better, as in answers.
    """
    k = min(k, r.size)
    kept = np.intersect1d(best(a, k), best(r, k), assume_unique=True)
    return kept.size / k if k else 1.0


def best(scores: Scores, k: int) -> Tensor:
    """Returns the indices of the k best scores, best first; of equal ones the lower index."""
    return np.argsort(-scores, kind="stable")[:k]


def _dot(one: Scores, other: Scores) -> float:
    """Returns the scalar product, on one thread: BLAS splits it by the number of cores."""
    return float(np.einsum("i,i->", one, other))


def _cosine(aa: float, rr: float, ar: float) -> float:
    """Returns the cosine of two vectors from their three products; for zeros see `Agreement`."""
    if aa == 0.0 or rr == 0.0:
        return 1.0 if aa == rr else 0.0
    return min(1.0, max(-1.0, ar / (math.sqrt(aa) * math.sqrt(rr))))


def _gaps(answer: Tensor, reference: Tensor, a: Scores, r: Scores) -> Scores:
    """Returns ``|a - r|``, flat; of whole numbers exactly, since float64 has no 2**53 + 1.

    Args:
        answer: As it came.
        reference: As it came.
        a: The answer, flat, in float64; it is overwritten.
        r: The same of the reference.
    """
    if answer.dtype.kind not in "iub" or reference.dtype.kind not in "iub":
        return np.abs(np.subtract(a, r, out=a), out=a)
    whole, right = answer.astype(np.int64).ravel(), reference.astype(np.int64).ravel()
    # Modulo 2**64, so that no difference of two 64-bit numbers overflows.
    high, low = np.maximum(whole, right), np.minimum(whole, right)
    return (high.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)


def _relative(error_squares: float, reference_squares: float) -> float:
    if not error_squares:
        return 0.0
    if not math.isfinite(error_squares) or not reference_squares:
        return _INFINITE
    return math.sqrt(error_squares / reference_squares)
