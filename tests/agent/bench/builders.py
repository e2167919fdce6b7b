"""Reports with given figures."""

from __future__ import annotations

from edge_agent.bench.report import SCHEMA, BenchReport, Cold, Device, EngineReport, Figures, Warm
from edge_agent.bench.statistics import latency
from edge_agent.bench.trial import Memory
from edge_agent.types import ModelRef

DEVICE = Device("generic-x86-64", None, "x86_64", "a processor", 2, 4096, "6.1")


def engine(
    name: str = "onnx",
    warm_ms: float = 5.0,
    cold_ms: float = 200.0,
    mib: float = 30.0,
    sample: str = "golden",
    wrong: str | None = None,
    p95_ms: float | None = None,
) -> EngineReport:
    warm = latency([warm_ms, warm_ms, p95_ms or warm_ms])
    figures = Figures(
        version="1.0",
        threads=2,
        sample=sample,
        wrong=wrong,
        cold_ms=Cold(*[latency([cold_ms])] * 6),
        warm_ms=Warm(*[warm] * 4),
        memory_mib=Memory(50.0, 50.0 + mib, 50.0 + mib),
    )
    return EngineReport(name, figures)


def report(
    *engines: EngineReport, name: str = "acme/colour", digest: str = "sha256:1"
) -> BenchReport:
    return BenchReport(SCHEMA, "0.1.0", ModelRef(name, "1.0.0", digest), DEVICE, engines)
