"""The golden probe: an input whose right answer the publisher knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.bundles import MAX_PROBE_BYTES
from edge_agent.types import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.bundles import Bundle
    from edge_agent.types import ScoredLabel, Tensor


def request(bundle: Bundle) -> Request | None:
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
    bundle: Bundle, labels: tuple[ScoredLabel, ...], outputs: Mapping[str, Tensor]
) -> str | None:
    """Compares an answer to the golden input with the right one.

    Args:
        bundle: The bundle that has it.
        labels: Ranked classes, best first.
        outputs: Raw outputs by name.

    Returns:
        What is wrong, one clause; None where the answer is right.
    """
    golden = bundle.description.golden
    if golden is None:
        return None
    top = golden.top
    if top is not None:
        best = labels[0]
        if best.index != top.index or abs(best.score - top.score) > top.tolerance:
            return (
                f"class {best.index} ({best.label}) with {best.score:.3f} instead of class "
                f"{top.index} with {top.score:.3f}"
            )
    for expected in golden.outputs:
        wrong = _output_difference(bundle, expected.file, outputs[expected.name])
        if wrong > expected.tolerance:
            return f"the output {expected.name!r} is off by {wrong:.4g}"
    return None


def _output_difference(bundle: Bundle, file: str, have: Tensor) -> float:
    import numpy as np

    from edge_agent import npy

    want = npy.parse(bundle.read(file, MAX_PROBE_BYTES), file)
    if want.shape != have.shape:
        return float("inf")
    wanted, had = want.astype(np.float64), have.astype(np.float64)
    differ = wanted != had  # infinities that are equal have no difference to compute
    gap = np.abs(wanted[differ] - had[differ])
    return float("inf") if np.isnan(gap).any() else float(gap.max(initial=0.0))
