"""A reference's tensors find their places in model.yaml, or it is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

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


def test_the_order_where_no_name_fits() -> None:
    found = fitted(product("a", "b", "c", [1, 4]))
    assert found.inputs == {"left": "a", "right": "b"}
    assert found.outputs == {"product": "c"}


def test_the_shape_where_the_order_does_not_fit() -> None:
    document = models.changed(models.PAIR, "inputs.1.shape", [1, 1])
    document = models.changed(document, "golden", ...)
    node = helper.make_node("Mul", ["wide", "one"], ["c"])
    made = models.onnx_file([node], {"one": [1, 1], "wide": [1, 4]}, {"c": [1, 4]})
    assert fitted(made, document).inputs == {"left": "wide", "right": "one"}


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
        (models.rows(), "no input 'l'"),
        (pooled([1, 3, 8, 8], [2, 3]), "no input 'l'; it has picture"),
    ],
)
def test_what_does_not_fit_is_named(model: bytes, told: str) -> None:
    with pytest.raises(ModelFileError, match="the FP32 reference: doesn't fit.*" + told) as caught:
        fitted(model)
    assert caught.value.hint


def test_no_onnx_file() -> None:
    with pytest.raises(ModelFileError, match="the FP32 reference: ONNX Runtime refuses"):
        fitted(b"nonsense")
