"""What is counted, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from edge_agent import errors
from edge_agent.calls import Answer, Priority, Reply
from edge_agent.telemetry.gauges import Gauges
from edge_agent.telemetry.metrics import Meter, registry, render
from edge_agent.telemetry.reasons import Reason, reason_of

from .figures import REF, gauges, machine, ran

NAMES = {"model": "acme/x", "version": "1.2.3"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(*collectors: Meter | Gauges) -> Samples:
    text = render(registry(*collectors)).decode()
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def value(of: Samples, name: str, **labels: str) -> float:
    return of[name, frozenset(labels.items())]


@pytest.fixture
def meter() -> Meter:
    made = Meter()
    made.remember(REF.name, REF.version, "onnx")
    return made


def test_answered_call(meter: Meter) -> None:
    meter.answered(ran(), Priority.HIGH, 1, 0.03)
    meter.answered(Reply(Answer(), REF, "onnx", is_cached=True), Priority.HIGH, 1, 0.001)
    found = samples(meter)
    labels = {**NAMES, "engine": "onnx", "priority": "high"}
    assert value(found, "edge_agent_requests_total", **labels, cached="false") == 1
    assert value(found, "edge_agent_requests_total", **labels, cached="true") == 1
    by_class = {**NAMES, "priority": "high"}
    assert value(found, "edge_agent_request_seconds_count", **by_class) == 2
    assert value(found, "edge_agent_request_seconds_sum", **by_class) == pytest.approx(0.031)
    assert value(found, "edge_agent_queue_seconds_sum", **by_class) == pytest.approx(0.002)
    for stage, seconds in (("pre", 0.02), ("infer", 0.004), ("post", 0.00025)):
        assert value(found, f"edge_agent_{stage}_seconds_count", **NAMES) == 1
        assert value(found, f"edge_agent_{stage}_seconds_sum", **NAMES) == pytest.approx(seconds)


def test_buckets_add_up_and_have_their_bound(meter: Meter) -> None:
    for batch_size in (1, 2, 3, 4, 999):
        meter.answered(ran(batch_size), Priority.NORMAL, 1, 0.01)
    found = samples(meter)
    bounds = ("1.0", "2.0", "4.0", "64.0", "+Inf")
    counts = [value(found, "edge_agent_batch_rows_bucket", **NAMES, le=one) for one in bounds]
    assert counts == [1, 2, 4, 4, 5]


def test_tritons_names(meter: Meter) -> None:
    for _ in range(4):
        meter.answered(ran(batch_size=4), Priority.BULK, 1, 0.03)
    meter.failed(REF.name, REF.version, errors.WorkerFailedError("x"))
    found = samples(meter)
    assert {
        name: value(found, f"nv_inference_{name}", **NAMES)
        for name in ("request_success", "request_failure", "count", "exec_count")
    } == {"request_success": 4, "request_failure": 1, "count": 4, "exec_count": 1}
    assert {
        name: round(value(found, f"nv_inference_{name}_duration_us", **NAMES))
        for name in ("request", "queue", "compute_input", "compute_infer", "compute_output")
    } == {
        "request": 120_000,
        "queue": 8_000,
        "compute_input": 80_000,
        "compute_infer": 16_000,
        "compute_output": 1_000,
    }


def test_failures_and_rejections(meter: Meter) -> None:
    full = errors.OverloadedError("x", retry_after_s=1)
    meter.failed(REF.name, REF.version, errors.DeadlineExceededError("x"))
    meter.failed(REF.name, REF.version, full)
    found = samples(meter)
    assert value(found, "edge_agent_failures_total", **NAMES, reason="deadline") == 1
    assert value(found, "edge_agent_rejections_total", **NAMES, reason="queue_full") == 1


def test_strangers_names_make_no_series(meter: Meter) -> None:
    before = len(samples(meter))
    for number in range(1000):
        meter.failed(f"x{number}", f"{number}.0.0", errors.ModelNotFoundError("x"))
    found = samples(meter)
    assert len(found) == before + 1
    nobody = {"model": "", "version": ""}
    assert value(found, "edge_agent_rejections_total", **nobody, reason="not_found") == 1000


def test_series_end_with_the_model(meter: Meter) -> None:
    meter.answered(ran(), Priority.NORMAL, 1, 0.03)
    meter.failed(REF.name, REF.version, errors.ImageError("x"))
    meter.forget(REF.name, REF.version)
    meter.forget(REF.name, REF.version)
    meter.failed(REF.name, REF.version, errors.ImageError("x"))  # it ended meanwhile
    assert [key for key in samples(meter) if ("model", "acme/x") in key[1]] == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.TensorError("x"), Reason.BAD_INPUT),
        (errors.ModelFileError("x"), Reason.ENGINE),
        (errors.EngineFailedError("x"), Reason.ENGINE),
        (errors.WorkerFailedError("x"), Reason.WORKER),
        (errors.DeadlineExceededError("x"), Reason.DEADLINE),
        (errors.ModelNotFoundError("x"), Reason.NOT_FOUND),
        (errors.ModelNotReadyError("x"), Reason.NOT_READY),
        (errors.OverloadedError("x", retry_after_s=1), Reason.QUEUE_FULL),
        (errors.OverloadedError("x", retry_after_s=1, is_callers_share=True), Reason.TENANT_FULL),
        (asyncio.CancelledError(), Reason.CANCELLED),
        (KeyError("x"), Reason.FAULT),
    ],
)
def test_reasons(error: BaseException, reason: Reason) -> None:
    assert reason_of(error) is reason


def test_gauges(tmp_path: Path) -> None:
    machine(tmp_path)
    found = samples(gauges(tmp_path))
    assert value(found, "edge_agent_queue_depth", model="acme/x", priority="bulk") == 5
    assert value(found, "edge_agent_worker_resident_bytes", pool="onnx", worker="1") == 200
    assert value(found, "edge_agent_worker_restarts_total", pool="onnx", reason="hung") == 2
    assert value(found, "edge_agent_cache_hits_total") == 1
    assert value(found, "edge_agent_cache_bytes") == 6
    assert value(found, "edge_agent_cache_up") == 1
    assert value(found, "edge_agent_cache_errors_total") == 7
    assert value(found, "edge_agent_resident_bytes") % 25 == 0
    assert value(found, "edge_agent_memory_available_bytes") == 3000 << 10
    where = {"scope": "machine", "resource": "memory"}
    assert value(found, "edge_agent_pressure_ratio", **where, waiting="some") == 0.25
    assert value(found, "edge_agent_pressure_ratio", **where, waiting="all") == 0.05


def test_what_the_kernel_does_not_tell_is_left_out(tmp_path: Path) -> None:
    nothing = Gauges(list, list, lambda: None, tmp_path)
    assert {name for name, _ in samples(nothing)} == {"edge_agent_build_info"}
