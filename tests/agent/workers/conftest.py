"""Children that do what a test tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_agent.workers import worker
from edge_agent.workers.settings import WorkerSettings


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> WorkerSettings:
    """Has workers be `stand_in`s; the engine of their settings is code that they begin with."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(worker, "CHILD", "stand_in")
    return WorkerSettings("", 1 << 20, 1 << 20)
