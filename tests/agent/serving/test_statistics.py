"""What one version's counters count."""

from __future__ import annotations

from edge_agent.calls import Answer, Reply
from edge_agent.serving import statistics
from edge_agent.serving.service import Duration
from edge_agent.types import ModelRef

REF = ModelRef("acme/a", "1.0.0", "sha256:1")
ANSWER = Answer(timings_ms={"prepare": 1.0, "infer": 4.0, "answer": 0.5})


def test_a_run_of_ones_own_counts_whole() -> None:
    counted = statistics.fresh(REF)
    statistics.count(counted, Reply(ANSWER, REF, "onnx", False, 2.0, 1), 1, 0.010)
    assert (counted.inference_count, counted.execution_count) == (1, 1)
    assert counted.success == Duration(1, 10_000_000)
    assert counted.queue == Duration(1, 2_000_000)
    assert counted.compute_input == Duration(1, 1_000_000)
    assert counted.compute_infer == Duration(1, 4_000_000)
    assert counted.compute_output == Duration(1, 500_000)
    assert counted.last_inference_ms > 0


def test_rows_of_one_batch_count_as_one_execution() -> None:
    counted = statistics.fresh(REF)
    for rows in (1, 3, 4):
        statistics.count(counted, Reply(ANSWER, REF, "onnx", False, 0.0, 8), rows, 0.01)
    assert (counted.inference_count, counted.execution_count) == (8, 1)
    statistics.count(counted, Reply(ANSWER, REF, "onnx", False, 0.0, 1), 5, 0.01)
    assert (counted.inference_count, counted.execution_count) == (13, 2)


def test_what_was_not_run_counts_as_a_hit_and_what_failed_as_a_failure() -> None:
    counted = statistics.fresh(REF)
    statistics.count_miss(counted, 0.001)
    statistics.count(counted, Reply(ANSWER, REF, "onnx", is_cached=True), 1, 0.002)
    statistics.count_failure(counted, 0.003)
    assert counted.cache_miss == Duration(1, 1_000_000)
    assert counted.cache_hit == counted.success == Duration(1, 2_000_000)
    assert counted.fail == Duration(1, 3_000_000)
    assert (counted.inference_count, counted.execution_count) == (0, 0)
