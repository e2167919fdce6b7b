"""The report's verdict and its JSON."""

from __future__ import annotations

import json
import math

from msgspec.structs import replace

from edge_agent.description import Drift

from .reports import FINE, WORST, engine, layer, pair, report

BAD = replace(FINE, relative_l2=0.5)


def test_ok_where_everything_holds() -> None:
    made = report(engine(), engine("tflite"), pairs=(pair(),))
    assert made.ok is True
    assert made.as_json()["breaches"] == []


def test_without_a_reference_nothing_is_known_to_be_right() -> None:
    made = replace(report(engine(outputs={}), pairs=(pair(),)), reference=None)
    assert made.ok is None
    assert made.as_json()["ok"] is None
    for wrong in (engine(outputs={}, golden="class 1"), engine(outputs={}, not_finite={"y": 1})):
        assert replace(made, engines=(wrong,)).ok is False


def test_one_engine_that_drifts_is_enough() -> None:
    made = report(engine(), engine("tflite", BAD))
    assert made.ok is False
    assert [(one.engine, one.measure) for one in made.breaches] == [("tflite", "relative_l2")]


def test_two_engines_that_differ_are_enough() -> None:
    assert report(engine(), pairs=(pair(0.9),)).ok is False


def test_a_wrong_golden_answer_is_enough() -> None:
    made = report(engine(golden="class 1 instead of class 2"))
    assert made.ok is False
    assert made.breaches == ()
    assert made.wrong_golden == (
        "onnx answers the golden input wrongly: class 1 instead of class 2",
    )


def test_json_has_everything_in_six_digits() -> None:
    made = report(
        engine(agreement=replace(FINE, relative_l2=1 / 3), worst=(WORST,)),
        pairs=(pair(),),
        layers=(layer("conv", 2 / 3),),
    ).as_json()
    assert made["schema"] == "edge-agent/drift/v1"
    assert made["model"] == {"name": "acme/model", "version": "1.0.0"}
    assert made["inputs"] == {"count": 10, "digest": "sha256:00"}
    (onnx,) = made["engines"]
    assert onnx["version"] == "onnx 1.0"
    assert onnx["outputs"]["y"]["relative_l2"] == 0.333333
    assert onnx["worst"] == [{"output": "y", "name": "a.png", "relative_l2": 0.333333}]
    assert onnx["golden"] == {"ok": True, "problem": None}
    assert made["consistency"][0]["engines"] == ["onnx", "tflite"]
    assert made["consistency"][0]["lsb"] == 4.0
    assert made["layers"] == [
        {"name": "conv", "operator": "Conv", "relative_l2": 0.666667, "added": 0.333333,
         "cosine": 0.9, "max_error": 1.0, "inputs": 10}
    ]  # fmt: skip
    assert made["thresholds"]["max_relative_l2"] == Drift().max_relative_l2


def test_json_is_json_where_numbers_are_not_finite() -> None:
    made = report(engine(agreement=replace(FINE, relative_l2=math.inf)))
    read = json.loads(made.serialise(), parse_constant=lambda name: 1 / 0)
    assert read["ok"] is False
    assert read["engines"][0]["outputs"]["y"]["relative_l2"] is None
    assert read["breaches"][0]["value"] is None


def test_golden_is_null_where_there_is_none_or_the_engine_is_missing() -> None:
    assert report(engine(), has_golden=False).as_json()["engines"][0]["golden"] is None
    missing = engine(outputs={}, not_finite={}, problem="isn't installed")
    assert report(missing).as_json()["engines"][0]["golden"] is None


def test_the_same_report_is_the_same_bytes() -> None:
    assert report(engine()).serialise() == report(engine()).serialise()
    assert report(engine()).serialise().endswith(b"}\n")
