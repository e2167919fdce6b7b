"""Reports for the tests of this room."""

from __future__ import annotations

from edge_agent.description import Drift
from edge_agent.drift.comparison import PairDifference, WorstInput
from edge_agent.drift.metrics import Agreement
from edge_agent.drift.report import DriftReport, EngineDrift, Inputs, LayerDrift

FINE = Agreement(relative_l2=0.2, cosine=0.98, max_error=2.5, top1=0.8, topk=0.85, inputs=10)


def engine(name: str = "onnx", agreement: Agreement = FINE, **more: object) -> EngineDrift:
    given = {"outputs": {"y": agreement}, "not_finite": {"y": 0}} | more
    return EngineDrift(name, f"{name} 1.0", **given)  # type: ignore[arg-type]


def pair(max_error: float = 0.4, step: float | None = 0.1) -> PairDifference:
    agreement = Agreement(0.04, 0.99, max_error, 0.96, 0.97, 10)
    return PairDifference(("onnx", "tflite"), "y", agreement, step)


def layer(name: str, relative_l2: float) -> LayerDrift:
    agreement = Agreement(relative_l2, 0.9, 1.0, None, None, 10)
    return LayerDrift(name, "Conv", agreement, relative_l2 / 2)


def report(
    *engines: EngineDrift,
    pairs: tuple[PairDifference, ...] = (),
    layers: tuple[LayerDrift, ...] = (),
    drift: Drift | None = None,
    has_golden: bool = True,
) -> DriftReport:
    return DriftReport(
        name="acme/model",
        version="1.0.0",
        inputs=Inputs(10, "sha256:00"),
        reference="sha256:11",
        thresholds=drift or Drift(),
        engines=engines,
        consistency=pairs,
        has_golden=has_golden,
        layers=layers,
    )


WORST = WorstInput("y", "a.png", 1 / 3)
