"""The watchdog is fed while somebody sees to every worker, and not longer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from msgspec import structs

from edge_agent.daemon.sd_notify import Notifier
from edge_agent.daemon.watchdog import Watchdog
from edge_agent.scheduler.limits import limits_of
from edge_agent.scheduler.scheduler import Scheduler
from edge_agent.serve_config import ServeConfig
from edge_agent.serving.hosts import Host, HostKind, Hosts
from edge_agent.workers.events import PoolStatus, WorkerStatus
from edge_agent.workers.pool import Pool

NOW = 10_000.0


class Workers:
    """A pool of one worker that can only be looked at."""

    def __init__(self, pid: int | None, proved_s_ago: float) -> None:
        self._status = WorkerStatus(pid, 0, NOW - proved_s_ago)

    def status(self) -> PoolStatus:
        return PoolStatus((self._status,), {})


def is_alive(*workers: Workers, **config: float) -> bool:
    async def look() -> bool:
        pools = [cast("Pool", one) for one in workers]
        host = Host(HostKind("onnx"), Scheduler(limits_of(ServeConfig())), pools)
        serve = structs.replace(ServeConfig(), **config)
        watchdog = Watchdog(Notifier({}), cast("Hosts", [host]), lambda: serve)
        return watchdog.is_alive(NOW)

    return asyncio.run(look())


@pytest.mark.parametrize(
    ("pid", "proved_s_ago", "alive"),
    [(1, 0.0, True), (1, 100.0, True), (1, 1000.0, False), (None, 1000.0, True)],
)
def test_a_worker_must_prove_itself_unless_it_is_being_replaced(
    pid: int | None, proved_s_ago: float, alive: bool
) -> None:
    assert is_alive(Workers(pid, proved_s_ago)) is alive
    assert is_alive(Workers(1, 0.0), Workers(pid, proved_s_ago)) is alive


def test_a_run_may_take_as_long_as_it_is_allowed_to() -> None:
    assert is_alive(Workers(1, 1000.0), max_run_ms=1_000_000)
    assert is_alive(Workers(1, 1000.0), canary_s=300.0)
    assert is_alive()


def test_it_is_fed_as_often_as_the_manager_wants() -> None:
    fed: list[None] = []

    class Counting(Notifier):
        def alive(self) -> None:
            fed.append(None)

    async def main() -> None:
        notifier = Counting({"WATCHDOG_USEC": "3000"})
        running = asyncio.create_task(Watchdog(notifier, cast("Hosts", []), ServeConfig).run())
        while len(fed) < 3:
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])
        await Watchdog(Notifier({}), cast("Hosts", []), ServeConfig).run()

    asyncio.run(main())
