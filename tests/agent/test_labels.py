"""Labels files, and scores that become ranked classes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from edge_agent.description import Classification
from edge_agent.errors import DescriptionError, ModelFileError, TensorError
from edge_agent.labels import parse_labels, rank

ABC = ("a", "b", "c")


def rule(activation: Literal["softmax", "sigmoid", "none"] = "none") -> Classification:
    return Classification(output="scores", activation=activation, labels="labels.json")


def test_labels_are_an_array_of_strings() -> None:
    assert parse_labels('["cat", "dög", ""]'.encode(), "l.json") == ("cat", "dög", "")


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b'{"0": "cat"}', b'"cat"', b"[1]", b'["a", null]', b'[["a"]]', b'["a"', b'["a",]',
     b"\xff", b'["\xff"]', b"[" * 5000, b'["a"] x', b"cat\ndog\n"],
)  # fmt: skip
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(DescriptionError, match=r"l\.json: is not a JSON array of strings"):
        parse_labels(data, "l.json")


def test_no_labels_at_all_are_refused() -> None:
    with pytest.raises(DescriptionError, match=r"l\.json: has no labels"):
        parse_labels(b"[]", "l.json")


@pytest.mark.parametrize("shape", [(3,), (1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int64"])
def test_the_best_come_first(shape: tuple[int, ...], dtype: str) -> None:
    best = rank(np.array([1, 3, 2], dtype).reshape(shape), rule(), ABC, 2)
    assert [(one.index, one.label, one.score) for one in best] == [(1, "b", 3.0), (2, "c", 2.0)]
    assert type(best[0].index) is int
    assert type(best[0].score) is float


def test_equal_scores_keep_the_order_of_classes_and_more_than_there_are_means_all() -> None:
    best = rank(np.array([1.0, 2.0, 2.0]), rule(), ABC, 99)
    assert [one.index for one in best] == [1, 2, 0]


def test_of_equal_scores_the_first_classes_make_it() -> None:
    ranked = rank(np.array([1, 3, 3, 2, 3, 0.0]), rule(), tuple("abcdef"), 2)
    assert [one.label for one in ranked] == ["b", "c"]
    ranked = rank(np.zeros(6), rule(), tuple("abcdef"), 4)
    assert [one.label for one in ranked] == ["a", "b", "c", "d"]


def test_booleans_and_the_smallest_integer_are_ranked() -> None:
    assert rank(np.array([False, True, False]), rule(), ABC, 1)[0].index == 1
    lowest = np.array([-128, -128, -127], np.int8)
    assert [one.index for one in rank(lowest, rule(), ABC, 3)] == [2, 0, 1]


def test_softmax() -> None:
    best = rank(np.array([0.0, np.log(3.0), 0.0]), rule("softmax"), ABC, 3)
    assert [one.score for one in best] == pytest.approx([0.6, 0.2, 0.2])


def test_sigmoid() -> None:
    best = rank(np.array([0.0, np.log(3.0), -np.log(3.0)]), rule("sigmoid"), ABC, 3)
    assert [one.score for one in best] == pytest.approx([0.75, 0.5, 0.25])


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
@pytest.mark.parametrize("size", [1e4, 3e38, 1e308])
def test_huge_scores_overflow_nowhere(activation: Any, size: float) -> None:
    best = rank(np.array([size, -size, 0.0]), rule(activation), ABC, 3)
    assert [one.index for one in best] == [0, 2, 1]
    assert best[0].score == pytest.approx(1.0)
    assert best[2].score == pytest.approx(0.0)


@pytest.mark.parametrize("shape", [(2,), (4,), (1, 2), (2, 3), (3, 1), (3, 3), (0,), ()])
def test_a_score_too_many_or_too_few(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelFileError, match=r"'scores' has the shape \[.*labels\.json has 3"):
        rank(np.zeros(shape), rule(), ABC, 1)


def test_two_rows_of_scores_are_never_taken_for_one() -> None:
    with pytest.raises(ModelFileError, match=r"shape \[2, 3\], labels.json has 6 labels"):
        rank(np.zeros((2, 3)), rule(), ABC * 2, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "none"])
def test_scores_that_are_no_numbers(bad: float, activation: Any) -> None:
    with pytest.raises(TensorError, match="isn't finite numbers"):
        rank(np.array([0.0, bad, 1.0]), rule(activation), ABC, 1)
