"""A daemon that has something to tell of everything, for tests."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from edge_agent import errors
from edge_agent.calls import Answer, Priority, Reply
from edge_agent.telemetry.gauges import CacheFigures, Gauges, Queue, Workers
from edge_agent.telemetry.metrics import Meter, registry, render
from edge_agent.types import ModelRef

REF = ModelRef("acme/x", "1.2.3", "sha256:" + "a" * 64)
TIMINGS = {"prepare": 20.0, "infer": 4.0, "answer": 0.25}
CACHE = CacheFigures(True, 7, 1, 2, 3, 4, 5, 6)
PRESSURE = "some avg10=25.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=5.00\n"


def ran(batch_size: int = 1) -> Reply:
    """A reply of a worker; it waited for two milliseconds."""
    answer = Answer(timings_ms=TIMINGS)
    return Reply(answer, REF, "onnx", queue_ms=2.0, batch_size=batch_size)


def gauges(root: Path) -> Gauges:
    """Gauges of a daemon at work."""
    queues = [Queue("acme/x", Priority.BULK, 2), Queue("acme/x", Priority.BULK, 3)]
    pools = [Workers("onnx", (100, 200), {"hung": 2})]
    return Gauges(lambda: queues, lambda: pools, lambda: CACHE, root)


def machine(root: Path) -> None:
    """Writes what the kernel tells."""
    (root / "proc/pressure").mkdir(parents=True)
    (root / "proc/self").mkdir()
    (root / "proc/self/statm").write_text("900 25 3 1 0 9 0\n")
    (root / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    (root / "proc/pressure/memory").write_text(PRESSURE)


def everything(root: Path) -> list[Metric]:
    """Every metric that there is, each with a sample."""
    machine(root)
    meter = Meter()
    meter.remember(REF.name, REF.version, "onnx")
    meter.answered(ran(), Priority.NORMAL, 1, 0.03)
    meter.failed(REF.name, REF.version, errors.WorkerFailedError("x"))
    meter.failed("", "", errors.ModelNotFoundError("x"))
    text = render(registry(meter, gauges(root))).decode()
    return list(text_string_to_metric_families(text))
