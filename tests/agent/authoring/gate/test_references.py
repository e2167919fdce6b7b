"""A reference's tensors find their places in model.yaml, or it is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper, load_model_from_string

from edge_agent import model_yaml
from edge_agent.authoring.gate.references import fit
from edge_agent.backends.base import ModelFile
from edge_agent.description import EngineFile
from edge_agent.errors import ModelFileError
from tests.agent import models


def fitted(model: bytes, document: models.Yaml = models.PAIR) -> EngineFile:
    return fit(ModelFile(model), model_yaml.parse(models.text(document)))


def product(left: str, right: str, out: str, shape: list[Any]) -> bytes:
    node = helper.make_node("Mul", [left, right], [out])
    return models.onnx_file([node], {left: shape, right: shape}, {out: shape})


def test_names_of_the_entry_for_onnx() -> None:
    found = fitted(models.pair())
    assert found.inputs == {"left": "l", "right": "r"}
    assert found.outputs == {"product": "p"}


def test_names_of_the_entry_win_over_the_order() -> None:
    node = helper.make_node("Sub", ["l", "r"], ["p"])
    swapped = models.onnx_file([node], {"r": [1, 4], "l": [1, 4]}, {"p": [1, 4]})
    assert fitted(swapped).inputs == {"left": "l", "right": "r"}


def test_names_of_model_yaml() -> None:
    found = fitted(product("right", "left", "product", [1, 4]))
    assert (found.inputs, found.outputs) == ({}, {})


def test_what_alone_fits_where_no_name_does() -> None:
    document = models.changed(models.PAIR, "inputs.1.shape", [1, 1])
    document = models.changed(document, "golden", ...)
    node = helper.make_node("Mul", ["wide", "one"], ["c"])
    made = models.onnx_file([node], {"one": [1, 1], "wide": [1, 4]}, {"c": [1, 4]})
    told: list[str] = []
    found = fit(ModelFile(made), model_yaml.parse(models.text(document)), told.append)
    assert found.inputs == {"left": "wide", "right": "one"}
    assert found.outputs == {"product": "c"}
    assert told == [
        f"the {what} is {native!r} in the FP32 reference: by its shape, not by name"
        for what, native in (
            ("input 'left'", "wide"), ("input 'right'", "one"), ("output 'product'", "c"),
        )
    ]  # fmt: skip


def test_nothing_is_told_of_names() -> None:
    told: list[str] = []
    fit(ModelFile(models.pair()), model_yaml.parse(models.text(models.PAIR)), told.append)
    assert told == []


def test_one_name_leaves_one_place_for_the_other() -> None:
    assert fitted(product("l", "b", "p", [1, 4])).inputs == {"left": "l", "right": "b"}


def test_the_dtype_tells_tensors_of_one_shape_apart() -> None:
    document = models.changed(models.PAIR, "inputs.1.dtype", "int64")
    document = models.changed(document, "golden", ...)
    whole = helper.make_node("Cast", ["n"], ["real"], to=TensorProto.FLOAT)
    nodes = [whole, helper.make_node("Mul", ["real", "x"], ["p"])]
    model = load_model_from_string(
        models.onnx_file(nodes, {"n": [1, 4], "x": [1, 4]}, {"p": [1, 4]})
    )
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    found = fitted(model.SerializeToString(), document)
    assert found.inputs == {"left": "x", "right": "n"}


TWINS = models.changed(
    models.changed(models.PAIR, "golden", ...),
    "outputs",
    [{"name": name, "dtype": "float32", "shape": [1, 4]} for name in ("same", "negated")],
)


def twins(same: str, negated: str) -> bytes:
    """The outputs stand in the other order than in model.yaml."""
    nodes = [
        helper.make_node("Sub", ["r", "l"], [negated]),
        helper.make_node("Sub", ["l", "r"], [same]),
    ]
    return models.onnx_file(nodes, {"l": [1, 4], "r": [1, 4]}, {negated: [1, 4], same: [1, 4]})


def test_the_order_of_the_file_decides_nothing() -> None:
    document = models.changed(TWINS, "engines.0.outputs", ...)
    assert fitted(twins("same", "negated"), document).outputs == {}
    with pytest.raises(
        ModelFileError, match="outputs out_neg, out_id fit 'same' equally"
    ) as caught:
        fitted(twins("out_id", "out_neg"), document)
    assert "engines[…].outputs" in (caught.value.hint or "")
    named = models.changed(document, "engines.0.outputs", {"same": "out_id", "negated": "out_neg"})
    assert fitted(twins("out_id", "out_neg"), named).outputs == {
        "same": "out_id",
        "negated": "out_neg",
    }


def test_two_inputs_of_one_shape_need_names() -> None:
    with pytest.raises(ModelFileError, match="inputs a, b fit 'left' equally well"):
        fitted(product("a", "b", "p", [1, 4]))


def test_one_output_of_two_that_fit_needs_a_name() -> None:
    with pytest.raises(ModelFileError, match="outputs out_neg, out_id fit 'product' equally well"):
        fitted(twins("out_id", "out_neg"))


def test_more_outputs_than_described_are_fine_under_their_names() -> None:
    nodes = [
        helper.make_node("Mul", ["l", "r"], ["p"]),
        helper.make_node("Add", ["l", "r"], ["other"]),
    ]
    made = models.onnx_file(nodes, {"l": [1, 4], "r": [1, 4]}, {"other": [1, 4], "p": [1, 4]})
    assert fitted(made).outputs == {"product": "p"}


def pooled(shape: list[Any], axes: list[int]) -> bytes:
    node = helper.make_node("ReduceMean", ["picture"], ["out"], axes=axes, keepdims=0)
    return models.onnx_file([node], {"picture": shape}, {"out": [1, 3]})


def test_the_layout_is_that_of_the_shape() -> None:
    assert fitted(pooled([1, 3, 8, 8], [2, 3]), models.COLOUR).layout is None
    assert fitted(pooled([1, 8, 8, 3], [1, 2]), models.COLOUR).layout == "NHWC"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (product("l", "r", "p", [1, 5]), r"'l' has the shape \[1, 5\]"),
        (models.rows(), r"no input for 'left'; it has x float32 \['\?', 2\]"),
        (pooled([1, 3, 8, 8], [2, 3]), "no input for 'left'; it has picture"),
    ],
)
def test_what_does_not_fit_is_named(model: bytes, told: str) -> None:
    with pytest.raises(ModelFileError, match="the FP32 reference: doesn't fit.*" + told) as caught:
        fitted(model)
    assert caught.value.hint


def test_no_onnx_file() -> None:
    with pytest.raises(ModelFileError, match="the FP32 reference: ONNX Runtime refuses"):
        fitted(b"nonsense")
