"""Real sockets, with both of uvicorn's protocols and both event loops."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_agent.server import listeners, protocols
from edge_agent.server.listeners import event_loop


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="ea", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["httptools", "h11"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "h11":
        monkeypatch.setattr(listeners, "protocol", lambda: protocols.LimitedH11)
    return str(request.param)


@pytest.fixture(params=[asyncio.new_event_loop, event_loop], ids=["asyncio", "fastest"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    def call(work: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(work, 40))

    return call
