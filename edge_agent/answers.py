"""The document that answers one input: what `edge-agent infer --json` prints and HTTP returns."""

from __future__ import annotations

TYPE_CHECKING = False  # the thin client takes the schema's name from here: no typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from edge_agent.types import ModelRef, ScoredLabel

SCHEMA = "edge-agent/infer/v1"


def document(
    source: str | None,
    model: ModelRef,
    engine: str,
    labels: Iterable[ScoredLabel],
    outputs: list[dict[str, Any]],
    confident: bool | None,
    timings_ms: Mapping[str, float],
    *,
    cached: bool = False,
) -> dict[str, Any]:
    """Returns the document of one answer.

    Args:
        source: Where the input came from; None where it has no name.
        model: What answered.
        engine: Which engine ran.
        labels: The best classes, best first.
        outputs: Made by `output`.
        confident: As in `types.Result`.
        timings_ms: Wall-clock milliseconds by stage.
        cached: Whether it was answered from the cache.
    """
    return {
        "schema": SCHEMA,
        "input": source,
        "model": {"name": model.name, "version": model.version, "digest": model.digest},
        "engine": engine,
        "labels": [{"index": one.index, "label": one.label, "score": one.score} for one in labels],
        "outputs": outputs,
        "confident": confident,
        "timings_ms": {stage: round(ms, 3) for stage, ms in timings_ms.items()},
        "cached": cached,
    }


def output(name: str, dtype: str, shape: Iterable[int], numbers: list[Any]) -> dict[str, Any]:
    """Returns one raw output as it stands in a document.

    Args:
        name: By model.yaml.
        dtype: NumPy's name of the element type.
        shape: Axis lengths.
        numbers: Flat, row-major; null for what JSON can't express.
    """
    return {"name": name, "dtype": dtype, "shape": list(shape), "data": numbers}
