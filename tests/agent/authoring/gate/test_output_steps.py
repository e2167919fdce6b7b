"""The step of an output's quantisation is found, or not claimed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_model_from_string, numpy_helper

from edge_agent import keyrings, model_yaml
from edge_agent.authoring.gate.output_steps import output_steps
from edge_agent.backends.base import ModelFile
from edge_agent.description import ModelDescription
from tests.agent import models

from . import drift_models as line

DESCRIPTION = model_yaml.parse(models.text(line.LINE))


def step(model: ModelFile, description: ModelDescription = DESCRIPTION) -> float | None:
    return output_steps(model, description, description.engines[0])["y"]


def changed(model: ModelFile, change: Any) -> ModelFile:
    proto = load_model_from_string(model.data)
    change(proto.graph)
    return ModelFile(proto.SerializeToString())


def test_the_scale_of_the_last_rounding() -> None:
    assert step(line.quantised()) == line.OUTPUT_SCALE


@pytest.mark.parametrize("move", ["Identity", "Flatten"])
def test_what_only_moves_values_is_looked_through(move: str) -> None:
    assert step(line.quantised(activation=move)) == line.OUTPUT_SCALE


@pytest.mark.parametrize("activation", ["Softmax", "Sigmoid"])
def test_what_changes_values_hides_it(activation: str) -> None:
    assert step(line.quantised(activation=activation)) is None


def test_a_float_model_has_none() -> None:
    assert step(line.line()) is None


def test_a_scale_a_channel_is_not_one_step() -> None:
    def several(graph: Any) -> None:
        scale = next(one for one in graph.initializer if one.name == "y_scale")
        scale.CopyFrom(numpy_helper.from_array(np.full(4, 0.5, np.float32), "y_scale"))

    assert step(changed(line.quantised(), several)) is None


def test_a_scale_in_a_constant_node() -> None:
    def as_node(graph: Any) -> None:
        scale = next(one for one in graph.initializer if one.name == "y_scale")
        node = helper.make_node("Constant", [], ["y_scale"], value=scale)
        graph.initializer.remove(scale)
        graph.node.insert(0, node)

    assert step(changed(line.quantised(), as_node)) == line.OUTPUT_SCALE


def test_a_scale_in_external_data() -> None:
    def outside(graph: Any) -> None:
        scale = next(one for one in graph.initializer if one.name == "y_scale")
        scale.ClearField("raw_data")
        scale.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", "4"), ("length", "4")):
            entry = scale.external_data.add()
            entry.key, entry.value = key, value

    made = changed(line.quantised(), outside)
    data = np.array([9.0, 0.25], "<f4").tobytes()
    assert step(ModelFile(made.data, {"w.bin": data})) == 0.25


def test_a_quantised_whole_number_is_its_own_step() -> None:
    def whole(graph: Any) -> None:
        del graph.node[-1]
        graph.node[-1].output[0] = "y"
        graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8

    described = model_yaml.parse(models.text(models.changed(line.LINE, "outputs.0.dtype", "uint8")))
    assert step(changed(line.quantised(), whole), described) == 1.0
    assert step(line.line(), described) is None


def test_both_engines_of_the_demo_have_the_same_step(demo: ModelDescription) -> None:
    found = []
    for part in demo.engines:
        data = (keyrings.DEMO_BUNDLE / part.file).read_bytes()
        found.append(output_steps(ModelFile(data), demo, part)["logits"])
    assert found[0] == pytest.approx(found[1], rel=0.01)
