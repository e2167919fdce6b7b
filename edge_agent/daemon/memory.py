"""How memory does on this machine and in this control group."""

from __future__ import annotations

from edge_agent.serving.pressure import Sample
from edge_profiles import pressure
from edge_profiles.detect import memory_available_bytes, memory_limit_bytes


def sample() -> Sample:
    """Returns how memory does now; reads a few small files."""
    available, limit = memory_available_bytes(), memory_limit_bytes()
    used = None
    if available is not None and limit:
        used = 100.0 * (1 - min(available, limit) / limit)
    stalls = [pressure.of_machine("memory"), pressure.of_group("memory")]
    shares = [one.some for one in stalls if one is not None]
    return Sample(used, max(shares, default=None))
