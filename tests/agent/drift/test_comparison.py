"""Several engines, several outputs, input by input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_agent import model_yaml
from edge_agent.description import ModelDescription
from edge_agent.drift.comparison import Comparison, ranks
from edge_agent.errors import ModelFileError
from tests.agent import models


def description(document: models.Yaml = models.COLOUR) -> ModelDescription:
    return model_yaml.parse(models.text(document))


TWO = models.changed(
    models.ROWS, "outputs", [{"name": n, "dtype": "float32", "shape": ["N", 2]} for n in "yz"]
)


def scores(*values: float) -> dict[str, Any]:
    return {"scores": np.array([values], np.float32)}


def test_each_engine_against_the_reference() -> None:
    comparison = Comparison(description(), ["onnx", "tflite"])
    answers = {"onnx": scores(3, 5, 0), "tflite": scores(3, 4, 0)}
    comparison.add("a.png", answers, scores(3, 4, 0))
    assert comparison.outputs("onnx")["scores"].relative_l2 == pytest.approx(0.2)
    assert comparison.outputs("tflite")["scores"].relative_l2 == 0.0


def test_only_the_scores_of_a_classifier_are_ranked() -> None:
    assert ranks(description(), "scores") == 5
    assert ranks(description(TWO), "y") is None


def test_two_outputs_are_measured_apart() -> None:
    comparison = Comparison(description(TWO), ["onnx"])
    one, off = np.ones((3, 2)), np.full((3, 2), 2.0)
    comparison.add("a.npz", {"onnx": {"y": one, "z": off}}, {"y": one, "z": one})
    found = comparison.outputs("onnx")
    assert (found["y"].max_error, found["z"].max_error) == (0.0, 1.0)


def test_a_batch_of_any_length() -> None:
    comparison = Comparison(description(models.ROWS), ["onnx"])
    for rows in (1, 3):
        comparison.add("a.npy", {"onnx": {"y": np.ones((rows, 2))}}, {"y": np.ones((rows, 2))})
    assert comparison.outputs("onnx")["y"].inputs == 2


def test_worst_inputs_are_named_worst_first() -> None:
    comparison = Comparison(description(), ["onnx"])
    for name, error in (("a", 1), ("b", 4), ("c", 2), ("d", 3)):
        comparison.add(name, {"onnx": scores(10 + error, 0, 0)}, scores(10, 0, 0))
    found = comparison.worst("onnx")
    assert [one.name for one in found] == ["b", "d", "c"]
    assert [one.relative_l2 for one in found] == pytest.approx([0.4, 0.3, 0.2])


def test_every_pair_in_every_output_with_the_larger_step() -> None:
    comparison = Comparison(description(), ["onnx", "tflite", "sandbox"])
    answers = {"onnx": scores(1, 0, 0), "tflite": scores(1, 0, 0.5), "sandbox": scores(0, 1, 0)}
    comparison.add("a.png", answers)
    steps = {("onnx", "scores"): 0.1, ("tflite", "scores"): 0.25, ("sandbox", "scores"): None}
    found = {one.engines: one for one in comparison.pairs(steps)}
    assert list(found) == [("onnx", "tflite"), ("onnx", "sandbox"), ("tflite", "sandbox")]
    assert found["onnx", "tflite"].lsb == 2.0
    assert found["onnx", "tflite"].agreement.top1 == 1.0
    assert found["onnx", "sandbox"].lsb is None
    assert found["onnx", "sandbox"].agreement.top1 == 0.0


def test_a_step_that_only_one_engine_has_is_no_measure() -> None:
    comparison = Comparison(description(), ["onnx", "tflite"])
    comparison.add("a.png", {"onnx": scores(1, 0, 0), "tflite": scores(1, 0, 0)})
    (found,) = comparison.pairs({("onnx", "scores"): 0.1})
    assert (found.step, found.lsb) == (None, None)


def test_without_a_reference_nothing_is_said_of_drift() -> None:
    comparison = Comparison(description(), ["onnx"])
    comparison.add("a.png", {"onnx": scores(1, float("nan"), 0)})
    comparison.add("b.png", {"onnx": scores(1, 0, 0)})
    assert comparison.outputs("onnx") == {}
    assert comparison.worst("onnx") == ()
    assert comparison.not_finite("onnx") == {"scores": 1}


def test_shapes_that_differ_name_both_sides() -> None:
    comparison = Comparison(description(models.ROWS), ["onnx", "tflite"])
    one, two = ({"y": np.zeros((rows, 2))} for rows in (1, 2))
    with pytest.raises(ModelFileError, match=r"a.npy.*'y'.*\[1, 2\] on onnx.*\[2, 2\] on tflite"):
        comparison.add("a.npy", {"onnx": one, "tflite": two})
    with pytest.raises(ModelFileError, match=r"\[2, 2\] on tflite and \[1, 2\] on the reference"):
        Comparison(description(models.ROWS), ["tflite"]).add("a.npy", {"tflite": two}, one)
