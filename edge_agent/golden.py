"""The golden probe: an input whose right answer the publisher knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.bundles import MAX_PROBE_BYTES
from edge_agent.types import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.bundles import Contents
    from edge_agent.types import ScoredLabel, Tensor


def request(bundle: Contents) -> Request | None:
    """Returns the golden input as a request, None where the bundle has none."""
    golden = bundle.description.golden
    if golden is None:
        return None
    from edge_agent import tensors

    inputs = {
        name: tensors.read(bundle.read(file, MAX_PROBE_BYTES), file, spec)
        for name, file in golden.tensors.items()
        if (spec := bundle.description.input(name))
    }
    image = bundle.read(golden.image, MAX_PROBE_BYTES) if golden.image else None
    return Request(bundle.ref.name, golden.image or "golden", image=image, tensors=inputs)


def difference(
    bundle: Contents, labels: tuple[ScoredLabel, ...], outputs: Mapping[str, Tensor]
) -> str | None:
    """Compares an answer to the golden input with the right one.

    Args:
        bundle: The bundle that has it.
        labels: Ranked classes, best first.
        outputs: Raw outputs by name.

    Returns:
        What is wrong, one clause that stands after a colon; None where the answer is right.
    """
    golden = bundle.description.golden
    if golden is None:
        return None
    top = golden.top
    if top is not None:
        best = labels[0]
        if best.index != top.index or abs(best.score - top.score) > top.tolerance:
            digits = 3 if best.index != top.index else _digits(best.score, top.score)
            return (
                f"class {best.index} ({best.label}) with {best.score:.{digits}f} instead of class "
                f"{top.index} with {top.score:.{digits}f}"
            )
    for expected in golden.outputs:
        wrong = _output_difference(bundle, expected.file, outputs[expected.name])
        if wrong > expected.tolerance:
            return f"the output {expected.name!r} is off by {wrong:.4g}"
    return None


def _digits(one: float, other: float) -> int:
    """Returns how many decimals tell two scores apart, three at least."""
    return next((n for n in range(3, 18) if f"{one:.{n}f}" != f"{other:.{n}f}"), 18)


def _output_difference(bundle: Contents, file: str, have: Tensor) -> float:
    """Returns the largest difference of any element; infinite where two can't be compared."""
    import numpy as np

    from edge_agent import npy

    want = npy.parse(bundle.read(file, MAX_PROBE_BYTES), file)
    if want.shape != have.shape:
        return float("inf")
    if have.dtype.kind in "iub":
        return _whole_difference(want, have)
    wanted, had = want.astype(np.float64), have.astype(np.float64)
    differ = wanted != had  # infinities that are equal have no difference to compute
    gap = np.abs(wanted[differ] - had[differ])
    return float("inf") if np.isnan(gap).any() else float(gap.max(initial=0.0))


def _whole_difference(want: Tensor, have: Tensor) -> float:
    """As above, exact: float64 has no 2**53 + 1.

    Args:
        want: Any numbers; one that isn't a whole number of 64 bits is never met.
        have: Integers or truth values of at most 64 bits with sign.
    """
    import numpy as np

    with np.errstate(invalid="ignore"):  # what doesn't fit is found by the comparison
        wanted, had = want.astype(np.int64), have.astype(np.int64)
    inside = want < 2**63 if want.dtype.kind in "fu" else True
    if not np.all(inside & (wanted == want)):
        return float("inf")
    # Modulo 2**64, so that no difference of two 64-bit numbers overflows.
    high, low = np.maximum(wanted, had).astype(np.uint64), np.minimum(wanted, had).astype(np.uint64)
    return int((high - low).max(initial=0))
