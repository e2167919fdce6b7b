"""Pools replace workers that grow, hold too much, or aren't relied on any more."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from edge_agent.errors import WorkerFailedError
from edge_agent.workers import slot
from edge_agent.workers.settings import WorkerSettings
from edge_agent.workers.worker import Worker

from .daemon_side import LOOPS, Loop, run, saying
from .pool_scene import MIB, Scene, scene


@pytest.mark.parametrize("loop", LOOPS)
def test_a_worker_that_grows_is_replaced_unnoticed(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch, loop: Loop
) -> None:
    held: dict[int, int] = {}
    monkeypatch.setattr(Worker, "held_bytes", lambda self: held.get(self.pid, 10 * MIB))

    async def ask(s: Scene) -> None:
        while not s.told.recycled:
            assert await s.echo("a", 1)
            assert await s.echo("b", 2)

    async def main() -> None:
        async with scene(stand_in, memory_mib=11) as s:
            await s.put(a="", b="if not isinstance(command, ProbeModel): time.sleep(0.2)")
            (old,) = s.pids()
            held[old] = 14 * MIB  # more than the cap, and than a quarter beyond a new one
            await asyncio.gather(ask(s), ask(s))
            assert "held 14 MiB, is replaced beyond 12" in s.told.recycled[0]
            assert s.pids() != [old]
            assert s.models() == {frozenset("ab")}
            assert s.pool.status().restarts == {"recycled": 1}
            assert await s.echo("b", 3)
            assert not s.told.failed

    run(main(), loop)


def test_workers_that_are_not_relied_on_are_replaced_unnoticed(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with scene(stand_in, count=2) as s:
            await s.put(a="")
            old = set(s.pids())
            s.pool.renew("they ran something bad")
            while len(s.told.recycled) < 2:
                assert await s.echo("a", 1)
            assert s.told.recycled == ["they ran something bad"] * 2
            assert old.isdisjoint(s.pids())
            assert s.models() == {frozenset("a")}
            assert not s.told.failed

    run(main(), LOOPS[0])


def test_a_worker_that_is_not_relied_on_is_replaced_when_one_can_be_started(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_RECYCLE_AGAIN_S", 0.01)
    monkeypatch.setattr("edge_agent.workers.pool._WATCH_S", 0.01)

    async def main() -> None:
        async with scene(stand_in) as s:
            await s.put(a="")
            s.shelf.codes["a"] = "kill(11)"
            s.pool.renew("it ran something bad")
            await s.told.until(lambda: s.told.failed)
            s.shelf.codes["a"] = ""
            await s.told.until(lambda: s.told.recycled)
            assert s.told.recycled == ["it ran something bad"]
            assert await s.echo("a", 1)

    run(main(), LOOPS[0])


def test_a_worker_that_never_held_less_is_not_replaced(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    often = asyncio.Event()

    def held(worker: Worker) -> int:
        looked.append(worker.pid)
        if len(looked) > 20:
            often.set()
        return 12 * MIB

    monkeypatch.setattr(Worker, "held_bytes", held)
    monkeypatch.setattr("edge_agent.workers.pool._WATCH_S", 0.001)

    async def main() -> None:
        async with scene(stand_in, memory_mib=11) as s:
            await s.put(a="")
            looked.clear()
            often.clear()
            await often.wait()
            assert not s.told.recycled

    run(main(), LOOPS[0])


def test_a_replacement_that_fails_leaves_the_old_worker(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: dict[int, int] = {}
    monkeypatch.setattr(Worker, "held_bytes", lambda self: held.get(self.pid, 10 * MIB))

    async def main() -> None:
        async with scene(stand_in, memory_mib=11) as s:
            await s.put(a="")
            (old,) = s.pids()
            s.shelf.codes["a"] = "kill(11)"
            held[old] = 14 * MIB
            await s.told.until(lambda: s.told.failed)
            assert await s.echo("a", 1)
            assert s.pids() == [old]
            assert not s.told.recycled
            assert not s.told.lost

    run(main(), LOOPS[0])


def test_a_run_that_takes_too_much_memory_is_ended(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_agent.workers.pool._WATCH_S", 0.01)
    settings = msgspec.structs.replace(stand_in, memory_limit_mib=50)

    async def main() -> None:
        async with scene(settings) as s:
            await s.put(a="")
            code = "much = b'x' * (80 << 20); time.sleep(60)"
            (one,) = await s.work.ask("a", saying(code))
            assert isinstance(one, WorkerFailedError)
            assert "MiB, may hold" in one.message
            code = (  # each alone would be little enough
                "for n in range(40): memory.view(Span(n << 20, 1 << 20))[:] = bytes(1 << 20)\n"
                "much = b'x' * (40 << 20); time.sleep(60)"
            )
            (one,) = await s.work.ask("a", saying(code))
            assert isinstance(one, WorkerFailedError)
            assert await s.echo("a", 1)
            assert s.pool.status().restarts == {"memory": 2}

    run(main(), LOOPS[0])
