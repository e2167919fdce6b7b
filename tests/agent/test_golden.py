"""The golden probe: its request, and what counts as a wrong answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_agent import golden
from edge_agent.errors import TensorError
from edge_agent.types import ScoredLabel

from . import models

if TYPE_CHECKING:
    from .conftest import Publisher

GREEN = ScoredLabel(1, "green", 1.0)


def test_no_golden_input(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.ROWS)
    assert golden.request(bundle) is None
    assert golden.difference(bundle, (), {}) is None


def test_an_image_is_asked_as_an_image(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.COLOUR)
    request = golden.request(bundle)
    assert request is not None
    assert request.image == models.png((0, 255, 0))
    assert (request.source, request.tensors) == ("golden/green.png", {})


def test_tensors_are_asked_as_described(publisher: Publisher) -> None:
    request = golden.request(publisher.bundle(models.PAIR))
    assert request is not None
    assert request.image is None
    assert {name: value.tolist() for name, value in request.tensors.items()} == {
        "left": [[1, 2, 3, 4]],
        "right": [[2, 2, 2, -1]],
    }


@pytest.mark.parametrize(
    "data", [b"", models.npy([[1, 2, 3, 99]]), models.npy([1, 2]), models.npy([[1] * 4], "f8")]
)
def test_a_golden_tensor_that_is_not_as_described(publisher: Publisher, data: bytes) -> None:
    bundle = publisher.bundle(models.PAIR, golden__left_npy=data)
    with pytest.raises(TensorError, match=r"^golden/left\.npy: "):
        golden.request(bundle)


@pytest.mark.parametrize(
    ("best", "wrong"),
    [
        (GREEN, None),
        (ScoredLabel(1, "green", 0.9995), None),
        (ScoredLabel(1, "green", 0.99), "class 1 (green) with 0.990 instead of class 1 with 1.000"),
        (ScoredLabel(1, "green", 1.01), "class 1 (green) with 1.010"),
        (
            ScoredLabel(1, "green", 0.996),
            "class 1 (green) with 0.996 instead of class 1 with 1.000",
        ),
        (ScoredLabel(2, "blue", 1.0), "class 2 (blue) with 1.000 instead of class 1 with 1.000"),
    ],
)
def test_the_best_class(publisher: Publisher, best: ScoredLabel, wrong: str | None) -> None:
    found = golden.difference(publisher.bundle(models.COLOUR), (best,), {})
    assert (found or "").startswith(wrong or "") and (found is None) == (wrong is None)


@pytest.mark.parametrize(
    ("score", "shown"),
    [(0.99964, "0.9996"), (0.999996, "0.999996"), (1 + 2**-52, "1.0000000000000002")],
)
def test_scores_that_differ_look_different(publisher: Publisher, score: float, shown: str) -> None:
    document = models.changed(models.COLOUR, "golden.top.tolerance", 0.0)
    best = ScoredLabel(1, "green", score)
    found = golden.difference(publisher.bundle(document), (best,), {}) or ""
    assert found.startswith(f"class 1 (green) with {shown} instead of class 1 with 1.0")


RIGHT = np.array([[2, 4, 6, -4]], "f4")


@pytest.mark.parametrize(
    ("tolerance", "value", "wrong"),
    [
        (0.0, RIGHT, None),
        (0.0, RIGHT + np.float32(2**-10), "the output 'product' is off by 0.0009766"),
        (0.01, RIGHT + np.float32(2**-10), None),
        (0.01, RIGHT * -1, "is off by 12"),
        (1e9, RIGHT[0], "is off by inf"),
        (1e9, RIGHT.reshape(4, 1), "is off by inf"),
        (1e9, RIGHT * np.float32(np.nan), "is off by inf"),
        (1e9, np.array([[2, 4, 6, np.nan]], "f4"), "is off by inf"),
        (1e9, np.array([[2, 4, 6, np.inf]], "f4"), "is off by inf"),
    ],
)
def test_raw_outputs(publisher: Publisher, tolerance: float, value: Any, wrong: str | None) -> None:
    document = models.changed(models.PAIR, "golden.outputs.0.tolerance", tolerance)
    found = golden.difference(publisher.bundle(document), (), {"product": value})
    assert (wrong in found) if wrong and found else found is wrong


def test_infinities_that_are_right_are_right(publisher: Publisher) -> None:
    masked = [[0, -np.inf, np.inf, 1]]
    bundle = publisher.bundle(models.PAIR, golden__product_npy=models.npy(masked))
    assert golden.difference(bundle, (), {"product": np.array(masked, "f4")}) is None
    other = np.array([[0, np.inf, np.inf, 1]], "f4")
    assert golden.difference(bundle, (), {"product": other}) is not None


def test_whole_numbers_do_not_wrap(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.PAIR, golden__product_npy=models.npy([[255] * 4], "uint8"))
    found = golden.difference(bundle, (), {"product": np.zeros((1, 4), "uint8")})
    assert found == "the output 'product' is off by 255"


def test_an_answer_that_is_no_tensor(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.PAIR, golden__product_npy=b"2 4 6 -4")
    with pytest.raises(TensorError, match=r"^golden/product\.npy: is not a readable"):
        golden.difference(bundle, (), {"product": RIGHT})


@pytest.mark.parametrize(
    ("want", "have", "wrong"),
    [
        (("int64", 2**53), ("int64", 2**53 + 1), "off by 1"),
        (("int64", 2**53 + 1), ("int64", 2**53 + 1), None),
        (("float64", 2**53), ("int64", 2**53 + 1), "off by 1"),
        (("float64", 7), ("int8", 7), None),
        (("float64", 7.5), ("int8", 7), "off by inf"),
        (("float64", np.nan), ("int8", 0), "off by inf"),
        (("float64", 2.0**63), ("int64", 2**63 - 1), "off by inf"),
        (("uint64", 2**63), ("int64", -(2**63)), "off by inf"),
        (("uint64", 2**53), ("int64", 2**53 + 1), "off by 1"),
        (("int64", -(2**63)), ("int64", 2**63 - 1), "off by 1.845e+19"),
        (("bool", True), ("bool", False), "off by 1"),
        (("uint8", 0), ("uint8", 255), "off by 255"),
    ],
)
def test_whole_numbers_are_compared_exactly(
    publisher: Publisher, want: tuple[str, Any], have: tuple[str, Any], wrong: str | None
) -> None:
    bundle = publisher.bundle(models.PAIR, golden__product_npy=models.npy([[want[1]]], want[0]))
    found = golden.difference(bundle, (), {"product": np.array([[have[1]]], have[0])})
    assert (found or "").endswith(wrong or "") and (found is None) == (wrong is None), found
