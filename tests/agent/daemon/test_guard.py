"""What fails in the background is logged without what it had at hand, and ends nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from edge_agent.daemon.guard import Guarded, lasting
from edge_agent.telemetry.logs import JsonLines


class Lines(logging.Handler):
    """Keeps lines as the daemon writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(JsonLines().format(record))


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Lines of the daemon's log."""
    handler, logger = Lines(), logging.getLogger("edge_agent.daemon")
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)


async def fail() -> None:
    raise ZeroDivisionError("the caller's secret")


def test_a_task_that_fails_ends_no_other(log: list[str]) -> None:
    async def main() -> str:
        async with asyncio.TaskGroup() as tasks:
            failing = Guarded(tasks).create_task(fail())
            await asyncio.wait({failing})
            return "goes on"

    assert asyncio.run(main()) == "goes on"
    (line,) = log
    assert '"background_fault"' in line
    assert "ZeroDivisionError" in line
    assert "secret" not in line


def test_what_should_last_is_begun_anew_and_can_be_cancelled(log: list[str]) -> None:
    async def main() -> None:
        begun = asyncio.Queue[int]()

        async def run() -> None:
            begun.put_nowait(1)
            if begun.qsize() < 3:
                await fail()
            await asyncio.Event().wait()

        running = asyncio.create_task(lasting(run, 0.0))
        while begun.qsize() < 3:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    asyncio.run(main())
    assert len(log) == 2


def test_what_returns_is_not_begun_anew(log: list[str]) -> None:
    async def run() -> None:
        log.append("ran")

    asyncio.run(lasting(run))
    assert log == ["ran"]
