"""Every threshold: kept, met exactly, broken."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from edge_agent.description import Drift
from edge_agent.drift import gate
from edge_agent.drift.gate import Breach

from .reports import FINE, pair

STRICT = Drift(
    max_relative_l2=0.2,
    min_cosine=0.98,
    max_error=2.5,
    min_top1_agreement=0.8,
    min_topk_agreement=0.85,
    max_lsb=4,
)


def broken(drift: Drift, **measures: float | None) -> list[Breach]:
    agreement = replace(FINE, **measures)
    return list(gate.of_engine("onnx", {"y": agreement}, {"y": 0}, drift))


def test_what_is_met_exactly_holds() -> None:
    assert broken(STRICT) == []


@pytest.mark.parametrize(
    ("measure", "value", "threshold"),
    [
        ("relative_l2", 0.21, 0.2),
        ("cosine", 0.97, 0.98),
        ("max_error", 2.6, 2.5),
        ("top1", 0.7, 0.8),
        ("topk", 0.84, 0.85),
    ],
)
def test_each_measure_alone_breaks(measure: str, value: float, threshold: float) -> None:
    assert broken(STRICT, **{measure: value}) == [Breach("onnx", "y", measure, value, threshold)]


def test_several_break_together() -> None:
    found = broken(STRICT, relative_l2=9.0, cosine=0.0, top1=0.0)
    assert [one.measure for one in found] == ["relative_l2", "cosine", "top1"]


def test_what_has_no_threshold_cannot_break() -> None:
    assert broken(Drift(), max_error=1e9, topk=0.0) == []


def test_what_is_not_measured_cannot_break() -> None:
    assert broken(STRICT, top1=None, topk=None) == []


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_no_threshold_forgives_what_is_not_finite(value: float) -> None:
    endless = Drift(max_relative_l2=math.inf)
    (found,) = broken(endless, relative_l2=value)
    assert found.measure == "relative_l2"
    assert "not finite" in str(found)


def test_answers_that_are_not_finite_break_without_a_reference() -> None:
    (found,) = gate.of_engine("onnx", {}, {"y": 2}, Drift())
    assert found == Breach("onnx", "y", "not_finite", 2, 0)


def test_engines_apart_by_steps() -> None:
    assert list(gate.of_pair(pair(0.4), STRICT)) == []
    (found,) = gate.of_pair(pair(0.5), STRICT)
    assert found == Breach("onnx/tflite", "y", "lsb", 5.0, 4)
    assert str(found) == "onnx/tflite y: lsb 5 is above 4"


def test_float32_rounding_breaks_no_threshold_in_steps() -> None:
    assert list(gate.of_pair(pair(0.4 + 1e-6), STRICT)) == []
    assert pair(0.45).lsb == 4.5
    assert len(list(gate.of_pair(pair(0.401), STRICT))) == 1


def test_engines_apart_by_an_unknown_number_of_steps() -> None:
    assert pair(99.0, None).lsb is None
    assert list(gate.of_pair(pair(99.0, None), STRICT)) == []


@pytest.mark.parametrize(
    ("value", "threshold", "shown"),
    [
        (0.350004, 0.35, "relative_l2 0.350004 is above 0.35"),
        (0.35 + 2**-54, 0.35, "relative_l2 0.35000000000000003 is above 0.34999999999999998"),
        (1234.5, 0.35, "relative_l2 1234 is above 0.35"),
    ],
)
def test_figures_that_differ_look_different(value: float, threshold: float, shown: str) -> None:
    assert str(Breach("onnx", "y", "relative_l2", value, threshold)) == f"onnx y: {shown}"


def test_a_breach_names_its_figures() -> None:
    assert str(Breach("onnx", "y", "cosine", 0.9375, 0.95)) == (
        "onnx y: cosine 0.9375 is below 0.95"
    )
