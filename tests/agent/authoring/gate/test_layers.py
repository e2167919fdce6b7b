"""Which tensors of two graphs are compared, over which inputs, and in what order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_model_from_string

from edge_agent.authoring.gate import layers
from edge_agent.authoring.gate.layers import MAX_INPUTS, Graph, Match, compare, matches
from edge_agent.authoring.gate.sample_inputs import SampleReader
from edge_agent.backends.base import ModelFile
from edge_agent.errors import EngineFailedError, ModelFileError
from tests.agent import models
from tests.agent.conftest import Bench
from tests.agent.marks import needs_external_data

from . import drift_models as line


@pytest.fixture
def reader(bench: Bench) -> SampleReader:
    return SampleReader(bench.loader, line.Memory(line.LINE))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    (tmp_path / "a.npy").write_bytes(models.npy([[1, 2, 3, 4]]))
    return [tmp_path / "a.npy"]


def graph(nodes: list[Any], shape: list[Any] | None = None) -> Graph:
    data = models.onnx_file(nodes, {"x": [1, 4]}, {nodes[-1].output[0]: shape or [1, 4]})
    return named(ModelFile(data))


def named(model: ModelFile) -> Graph:
    return Graph(model, line.Memory(line.LINE).description.engines[0])


def chain(length: int, operator: str = "Identity") -> list[Any]:
    names = ["x", *(f"t{index}" for index in range(length))]
    return [helper.make_node(operator, [source], [target]) for source, target in pairwise(names)]


def test_a_rounded_tensor_is_what_the_next_layer_sees() -> None:
    pair = (load_model_from_string(one.data).graph.node for one in (line.line(), line.quantised()))
    assert matches(*pair) == [
        Match("doubled", "Mul", "doubled"),
        Match("active", "Relu", "active_DequantizeLinear_Output"),
        Match("y", "Add", "y"),
    ]


def test_constants_and_outputs_that_are_left_out_are_no_layers() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("v", 1, [1], [1.0])),
        helper.make_node("Dropout", ["x"], ["d", ""]),
    ]
    assert matches(nodes, nodes) == [Match("d", "Dropout", "d")]


def test_more_tensors_than_are_held_together(reader: SampleReader, files: list[Path]) -> None:
    count = 2 * layers._AT_ONCE + 1
    told: list[int] = []
    found = compare(
        graph(chain(count)), graph(chain(count, "Neg")), reader, files,
        lambda done, total: told.append(total),
    )  # fmt: skip
    assert [one.name for one in found] == [f"t{index}" for index in range(count)]
    # Negated once, twice, thrice: every other tensor is the opposite of its twin.
    errors = [one.agreement.relative_l2 for one in found]
    assert errors == pytest.approx([2.0 if index % 2 == 0 else 0.0 for index in range(count)])
    assert told == [3, 3, 3]


def test_tensors_that_are_no_floats_or_of_another_shape_are_left_out(
    reader: SampleReader, files: list[Path]
) -> None:
    left = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Shape", ["x"], ["whole"]),
        helper.make_node("Transpose", ["same"], ["turned"], perm=[1, 0]),
        helper.make_node("Identity", ["same"], ["last"]),
    ]
    right = [*left[:2], helper.make_node("Identity", ["same"], ["turned"]), left[3]]
    found = compare(graph(left), graph(right), reader, files)
    assert [one.name for one in found] == ["same", "last"]


def test_layers_that_make_nan_are_infinitely_wrong(reader: SampleReader, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(models.npy([[1, 2, 3, -4]]))
    found = compare(graph(chain(1)), graph(chain(1, "Sqrt")), reader, [tmp_path / "a.npy"])
    assert found[0].agreement.relative_l2 == float("inf")


def test_no_more_inputs_are_run_than_it_says(reader: SampleReader, files: list[Path]) -> None:
    told: list[int] = []
    many = files * (MAX_INPUTS + 1)
    compare(graph(chain(1)), graph(chain(1)), reader, many, lambda done, total: told.append(total))
    assert told == [MAX_INPUTS] * MAX_INPUTS


@needs_external_data
def test_weights_in_external_data(reader: SampleReader, files: list[Path]) -> None:
    proto = load_model_from_string(line.line().data)
    two = next(one for one in proto.graph.initializer if one.name == "two")
    two.ClearField("raw_data")
    two.data_location = TensorProto.EXTERNAL
    entry = two.external_data.add()
    entry.key, entry.value = "location", "w.bin"
    outside = ModelFile(proto.SerializeToString(), {"w.bin": np.float32(2).tobytes()})
    found = compare(named(outside), named(line.quantised()), reader, files)
    assert [one.agreement.relative_l2 for one in found] == [0.0, 0.0, 0.0]


def test_what_a_layer_adds_is_told_from_what_it_inherits() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a"], ["fused"]),
        helper.make_node("Conv", ["fused", "w"], ["b", ""]),
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Clip", ["sum", "", "w"], ["cut"]),
    ]
    errors = {"a": 0.25, "b": 0.75, "sum": 0.625, "cut": 1.0}
    added = {"a": 0.25, "b": 0.5, "sum": -0.125, "cut": 0.375}
    assert layers.added_errors(nodes, errors) == added
    broken = layers.added_errors(nodes, errors | {"b": float("inf"), "sum": float("inf")})
    assert broken == {"a": 0.25, "b": float("inf"), "sum": 0.0, "cut": 0.0}


def test_a_file_that_is_no_model() -> None:
    with pytest.raises(ModelFileError, match=r"model\.onnx"):
        named(ModelFile(b"\xff\xff nonsense"))


def test_a_failure_names_the_input(reader: SampleReader, files: list[Path]) -> None:
    wide = models.onnx_file(chain(1), {"x": [1, 5]}, {"t0": [1, 5]})
    with pytest.raises(EngineFailedError, match=r"a\.npy: ONNX Runtime failed"):
        compare(graph(chain(1)), named(ModelFile(wide)), reader, files)
