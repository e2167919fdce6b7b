"""Whether what was promised holds on this device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.bench.report import EngineReport, Promise
from edge_agent.engine_choice import Measurement, fastest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.description import Contract


def judge(
    contract: Contract,
    engines: Sequence[EngineReport],
    max_latency_ms: float | None,
    max_memory_mib: float | None,
) -> tuple[Promise, ...]:
    """Holds the engine that inference would choose against contract and device.

    Latency is the 95th percentile of a warm answer, from the encoded input on; memory is what the
    model adds to the process at its peak.

    Args:
        contract: What the publisher promises.
        engines: What was measured, in this machine's order of preference.
        max_latency_ms: Above this an answer is too late on this device; None for no limit.
        max_memory_mib: What a model may take on this device; None for no limit.

    Returns:
        Empty where no engine answers rightly, or nothing is promised.
    """
    right = {one.engine: one.figures for one in engines if one.figures and not one.figures.wrong}
    if not right:
        return ()
    engine = fastest([Measurement(name, one.warm_ms.infer.p50) for name, one in right.items()])
    best = right[engine]
    latency_ms = best.warm_ms.total.p95
    memory_mib = None if best.memory_mib is None else best.memory_mib.session
    limits = (
        ("contract.latency_ms", contract.latency_ms, latency_ms),
        ("contract.memory_mib", contract.memory_mib, memory_mib),
        ("device max_latency_ms", max_latency_ms, latency_ms),
        ("device max_memory_mib", max_memory_mib, memory_mib),
    )
    return tuple(
        Promise(name, limit, measured, engine, measured <= limit)
        for name, limit, measured in limits
        if limit is not None and measured is not None
    )
