"""Every measure against values worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edge_agent.drift.metrics import Agreement, Running, best, kept_share


def measured(
    *pairs: tuple[Any, Any], dtype: str = "float32", top_k: int | None = None
) -> Agreement:
    running = Running(top_k)
    for answer, reference in pairs:
        running.add(np.array(answer, dtype), np.array(reference, dtype))
    return running.result()


def test_one_input() -> None:
    found = measured(([[3.0, 5.0]], [[3.0, 4.0]]))
    assert found.relative_l2 == pytest.approx(1 / 5)
    assert found.cosine == pytest.approx(29 / (5 * math.sqrt(34)))
    assert (found.max_error, found.top1, found.topk, found.inputs) == (1.0, None, None, 1)


def test_relative_l2_is_over_all_inputs_together_and_cosine_is_a_mean() -> None:
    found = measured(([0.0, 1.0], [1.0, 0.0]), ([6.0, 8.0], [6.0, 8.0]))
    assert found.relative_l2 == pytest.approx(math.sqrt(2 / 101))
    assert found.cosine == pytest.approx(0.5)
    assert (found.max_error, found.inputs) == (1.0, 2)


def test_add_returns_the_error_of_that_input_alone() -> None:
    running = Running()
    running.add(np.ones(4), np.zeros(4) + 2)
    assert running.add(np.array([3.0, 5.0]), np.array([3.0, 4.0])) == pytest.approx(0.2)


def test_the_same_answer_has_no_error() -> None:
    found = measured(([1.0, -2.0, 3.0], [1.0, -2.0, 3.0]))
    assert (found.relative_l2, found.max_error) == (0.0, 0.0)
    assert found.cosine == pytest.approx(1.0)
    assert found.cosine <= 1.0


def test_opposite_vectors() -> None:
    found = measured(([-1.0, -1.0], [1.0, 1.0]))
    assert found.relative_l2 == pytest.approx(2.0)
    assert found.cosine == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("answer", "reference", "relative_l2", "cosine"),
    [
        ([0.0, 0.0], [0.0, 0.0], 0.0, 1.0),
        ([0.0, 0.0], [3.0, 4.0], 1.0, 0.0),
        ([3.0, 4.0], [0.0, 0.0], math.inf, 0.0),
        ([], [], 0.0, 1.0),
    ],
)
def test_zero_vectors(
    answer: list[float], reference: list[float], relative_l2: float, cosine: float
) -> None:
    found = measured((answer, reference))
    assert (found.relative_l2, found.cosine) == (relative_l2, cosine)


def test_smallest_float32_numbers_are_not_zero() -> None:
    tiny = float(np.float32(1e-45))
    assert measured(([tiny, 0.0], [0.0, tiny])).cosine == 0.0
    assert measured(([tiny, 0.0], [tiny, 0.0])).cosine == pytest.approx(1.0)


def test_largest_float32_numbers_do_not_overflow() -> None:
    found = measured(([3e38, -3e38], [3e38, 3e38]))
    assert found.relative_l2 == pytest.approx(math.sqrt(2))
    assert found.max_error == pytest.approx(6e38)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("in_reference", [False, True])
def test_a_number_that_is_not_finite_is_an_infinite_error(bad: float, in_reference: bool) -> None:
    pair = ([1.0, bad], [1.0, 2.0])
    found = measured(pair[::-1] if in_reference else pair, ([1.0, 2.0], [1.0, 2.0]), top_k=1)
    assert (found.relative_l2, found.max_error) == (math.inf, math.inf)
    assert found.cosine == pytest.approx(0.0)  # -1 and 1
    assert (found.top1, found.topk) == (0.5, 0.5)


def test_equal_infinities_are_no_agreement() -> None:
    found = measured(([math.inf, 1.0], [math.inf, 1.0]))
    assert (found.relative_l2, found.max_error) == (math.inf, math.inf)


def test_top1_and_topk() -> None:
    found = measured(
        ([9.0, 8.0, 1.0, 0.0], [9.0, 1.0, 8.0, 0.0]),  # the best kept, one of two kept
        ([0.0, 1.0, 8.0, 9.0], [0.0, 1.0, 9.0, 8.0]),  # the best lost, both kept
        top_k=2,
    )
    assert (found.top1, found.topk) == (0.5, 0.75)


def test_of_equal_scores_the_lower_index_is_better() -> None:
    assert best(np.array([1.0, 7.0, 7.0, 7.0]), 2).tolist() == [1, 2]
    many = np.tile([3.0, 1.0, 3.0, 2.0], 250)  # as many classes as make an unstable sort swap
    assert best(many, 6).tolist() == [0, 2, 4, 6, 8, 10]
    tied = measured(([5.0, 5.0], [4.0, 5.0]), top_k=1)
    assert tied.top1 == 0.0
    assert measured(([5.0, 5.0], [5.0, 4.0]), top_k=1).top1 == 1.0


def test_k_beyond_the_classes_means_all() -> None:
    assert kept_share(np.array([1.0, 2.0]), np.array([2.0, 1.0]), 5) == 1.0


def test_whole_numbers_and_truth_values() -> None:
    found = measured(([-128, 127], [127, -128]), dtype="int8")
    assert found.max_error == 255.0
    flags = measured(([True, False], [True, True]), dtype="bool")
    assert flags.max_error == 1.0
    assert flags.relative_l2 == pytest.approx(math.sqrt(1 / 2))


def test_whole_numbers_are_exact_beyond_float64() -> None:
    assert measured(([2**53 + 1], [2**53]), dtype="int64").max_error == 1.0
    assert measured(([2**63 - 1], [-(2**63)]), dtype="int64").max_error == float(2**64 - 1)


def test_the_answer_is_left_as_it_was() -> None:
    answer, reference = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    Running(1).add(answer, reference)
    assert answer.tolist() == [1.0, 2.0]
    assert reference.tolist() == [3.0, 4.0]
