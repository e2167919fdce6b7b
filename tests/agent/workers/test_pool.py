"""Pools: everyone is answered, whatever becomes of one process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Container
from functools import partial
from typing import Any

import msgspec
import pytest

from edge_agent.calls import Answer, Priority
from edge_agent.errors import (
    GoldenMismatchError,
    ModelFileError,
    ModelNotFoundError,
    WorkerFailedError,
)
from edge_agent.workers import slot
from edge_agent.workers.pool import Pool
from edge_agent.workers.settings import PoolSettings, WorkerSettings
from edge_agent.workers.work import Batch
from edge_agent.workers.worker import Worker

from .daemon_side import (
    LOOPS,
    SETTINGS,
    Loop,
    Told,
    Work,
    children,
    image,
    numbers,
    open_descriptors,
    product,
    row,
    run,
    saying,
)
from .pool_scene import COLOUR, MIB, PAIR, REAL, ROWS, Scene, Shelf, scene

ALL = frozenset({"a", "b"})


class HastyWork(Work):
    """Hands out batches for models that the worker has no more: it has just died of them."""

    async def next_batch(self, models: Container[str], classes: Container[Priority]) -> Batch:
        return await super().next_batch(ALL, classes)


@pytest.mark.parametrize("loop", LOOPS)
def test_batches_of_real_models_are_answered(loop: Loop) -> None:
    async def main() -> None:
        async with scene(SETTINGS, count=2, canary_s=0.1) as s:
            for name in REAL:
                loaded = await s.pool.load(name)
                assert loaded.engine_version.startswith("onnxruntime")
            answers = await asyncio.gather(
                *(s.work.ask(ROWS, row(n, n), row(-n, 1)) for n in range(20)),
                *(s.work.ask(PAIR, product(n / 2, 0, 0, 1)) for n in range(20)),
            )
            for n in range(20):
                assert [numbers(one) for one in answers[n]] == [[2 * n, 2 * n], [-2 * n, 2]]
                assert numbers(answers[20 + n][0]) == [n, 0, 0, 2]
            (blue,) = await s.work.ask(COLOUR, image((0, 0, 255)))
            assert isinstance(blue, Answer)
            assert blue.labels[0][0].label == "blue"
            workers = s.pool.status().workers
            assert s.models() == {frozenset(REAL)}
            assert all(one.engine_version.startswith("onnxruntime") for one in workers)
            assert all(one.held_bytes > 16 * MIB for one in workers)
            os.kill(s.pids()[0], signal.SIGSEGV)
            await s.told.until(lambda: s.told.failed)
            assert numbers((await s.work.ask(PAIR, product(1, 1, 1, 1)))[0]) == [2, 2, 2, 2]
            assert not s.told.lost

    run(main(), loop)


def test_a_model_is_loaded_by_all_workers_or_none(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with scene(stand_in, count=3) as s:
            await s.put(good="")
            s.shelf.codes["bad"] = (
                f"if isinstance(command, LoadModel) and os.getpid() == {s.pids()[1]}:\n"
                "  send(Failed(command.id, Failure('ModelFileError', 'no'))); is_quiet = True"
            )
            with pytest.raises(ModelFileError, match="no"):
                await s.pool.load("bad")
            with pytest.raises(ModelNotFoundError):
                await s.pool.load("none")
            assert s.models() == {frozenset({"good"})}
            assert await s.echo("good", 1)
            await s.pool.unload("good")
            assert s.models() == {frozenset()}
            await s.pool.unload("good")
            assert not s.told.failed

    run(main(), LOOPS[0])


def test_who_gives_up_a_load_does_not_wait_for_a_worker_that_hangs(
    stand_in: WorkerSettings,
) -> None:
    async def main() -> None:
        async with scene(stand_in) as s:
            await s.put(a="")
            s.shelf.codes["b"] = "time.sleep(60)"
            load = asyncio.create_task(s.pool.load("b"))
            while "b" not in s.shelf.opened:
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            load.cancel()
            await asyncio.wait({load}, timeout=5)
            assert load.cancelled()
            assert s.models() == {frozenset("a")}

    run(main(), LOOPS[0])


def test_a_load_beside_a_batch_that_ends_the_worker_is_done_again(
    stand_in: WorkerSettings,
) -> None:
    async def main() -> None:
        async with scene(stand_in) as s:
            await s.put(a="")
            s.shelf.codes["b"] = ""
            batch = asyncio.create_task(s.work.ask("a", saying("time.sleep(0.1); kill(11)")))
            await s.work.until(lambda: s.work.taken)
            await s.pool.load("b")
            assert isinstance((await batch)[0], WorkerFailedError)
            assert await s.echo("b", 1)
            assert s.told.failed[0][0] is None  # it may have been either
            s.shelf.codes["c"] = "kill(11)"
            with pytest.raises(WorkerFailedError, match="SIGSEGV"):
                await s.pool.load("c")
            await s.told.until(lambda: len(s.told.failed) == 2)
            assert s.told.failed[1][0] == "c"
            assert await s.echo("a", 1)

    run(main(), LOOPS[0])


ENDINGS = [
    ("kill(11)", 20.0, "SIGSEGV", "crashed"),
    ("time.sleep(60)", 0.2, r"took longer than 0.2 s for a run", "hung"),
    ("send(Ran(command.id, ()))", 20.0, "0 answers", "untrue"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("code", "timeout_s", "message", "trouble"), ENDINGS)
def test_only_the_batch_that_ended_a_worker_fails(
    stand_in: WorkerSettings, code: str, timeout_s: float, message: str, trouble: str, loop: Loop
) -> None:
    async def main() -> None:
        async with scene(stand_in) as s:
            await s.put(a="", b="")
            before = s.pids()
            others = asyncio.gather(*(s.echo("ab"[n % 2], n) for n in range(6)))
            outcomes = await s.work.ask("a", saying(code, 1), saying("", 2), timeout_s=timeout_s)
            assert [type(one) for one in outcomes] == [WorkerFailedError] * 2
            assert all(message in str(one) for one in outcomes)
            assert all(await others)
            assert [digest for digest, _ in s.told.failed] == ["a"]
            assert message in s.told.failed[0][1]
            assert s.pool.status().restarts == {trouble: 1}
            assert s.pids() != before
            assert not s.told.lost

    run(main(), loop)


def _more_than(count: int, things: list[Any]) -> bool:
    return len(things) > count


@pytest.mark.parametrize("loop", LOOPS)
def test_killing_workers_again_and_again_fails_no_more_than_what_they_run(
    stand_in: WorkerSettings, loop: Loop
) -> None:
    dice = random.Random(7)
    failed: list[str] = []
    answered = 0
    news = asyncio.Event()

    async def ask(s: Scene, model: str, is_over: asyncio.Event) -> None:
        nonlocal answered
        while not is_over.is_set():
            (one,) = await s.work.ask(model, saying("time.sleep(0.002)", 1))
            if isinstance(one, Answer):
                answered += 1
                news.set()
            else:
                failed.append(str(one))

    async def main() -> None:
        async with scene(stand_in, count=2) as s:
            await s.put(a="", b="")
            is_over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for model in "aabb":
                    group.create_task(ask(s, model, is_over))
                for n in range(25):
                    news.clear()
                    await news.wait()  # something is answered between two deaths
                    await s.work.until(s.pids)
                    os.kill(dice.choice(s.pids()), signal.SIGKILL)
                    await s.told.until(partial(_more_than, n, s.told.failed))
                    await asyncio.sleep(dice.random() * 0.05)  # any moment is a bad one
                is_over.set()
            assert s.pool.status().restarts["crashed"] == 25
            assert not s.told.lost
            assert all(await asyncio.gather(*(s.echo(one, 3) for one in "aabb")))

    run(main(), loop)
    assert len(failed) <= 25
    assert all("SIGKILL" in one for one in failed)
    assert answered >= 25


@pytest.mark.parametrize("memory_mib", [None, 1])
def test_a_batch_that_finds_its_worker_dead_is_run_by_the_next(
    stand_in: WorkerSettings, memory_mib: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside canaries, or while a replacement is on its way."""
    held: dict[int, int] = {}
    monkeypatch.setattr(Worker, "held_bytes", lambda self: held.get(self.pid, 10 * MIB))

    async def main() -> None:
        async with scene(stand_in, HastyWork(), memory_mib=memory_mib, canary_s=0.001) as s:
            await s.put(a="", b="")
            for n in range(5):
                (pid,) = s.pids()
                held[pid] = 100 * MIB
                await asyncio.sleep(0.1 * n)  # before, while and after it is replaced
                os.kill(s.pids()[0], signal.SIGKILL)
                await s.told.until(partial(_more_than, n, s.told.failed))
                assert await s.echo("a", 1)

    run(main(), LOOPS[0])


def test_a_model_that_can_not_be_opened_again_is_lost_and_the_others_are_served(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_BACKOFF_S", (0.0,))

    async def main() -> None:
        async with scene(stand_in) as s:
            await s.put(a="", b="", c="")
            s.shelf.broken["a"] = ModelNotFoundError("gone")
            s.shelf.codes["b"] = "kill(6)"
            os.kill(s.pids()[0], signal.SIGKILL)
            await s.told.until(lambda: len(s.told.lost) == 2)
            assert await s.echo("c", 1)
            assert s.told.lost["a"] is s.shelf.broken["a"]
            assert "SIGABRT" in str(s.told.lost["b"])
            assert s.models() == {frozenset("c")}
            assert [digest for digest, _ in s.told.failed] == [None, "b", "b", "b"]

    run(main(), LOOPS[0])


def test_workers_that_can_not_start_are_tried_again_later_and_later(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "_BACKOFF_S", (0.0, 0.0, 0.001, 0.002))
    settings = msgspec.structs.replace(stand_in, engine="sys.exit('no engine')")

    async def main() -> None:
        async with scene(settings) as s:
            s.shelf.codes["a"] = ""
            with pytest.raises(WorkerFailedError, match="exit code 1: no engine"):
                await s.pool.load("a")
            await s.told.until(lambda: len(s.told.failed) >= 6)
            status = s.pool.status()
            assert status.workers[0].pid is None
            assert status.restarts["start"] >= 6

    run(main(), LOOPS[0])


def test_an_idle_worker_proves_each_of_its_models(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with scene(stand_in, count=2, canary_s=0.01) as s:
            starts = {one.last_proof for one in s.pool.status().workers}
            await s.put(a="", b="", c="")
            wrong = (
                "if isinstance(command, ProbeModel): send(Failed(command.id, "
                "Failure('GoldenMismatchError', 'wrong'))); is_quiet = True"
            )
            await s.put(d=wrong)
            await s.told.until(lambda: "d" in s.told.lost)
            assert isinstance(s.told.lost["d"], GoldenMismatchError)
            await s.told.until(lambda: s.models() == {frozenset("abc")})
            assert min(one.last_proof for one in s.pool.status().workers) > max(starts)
            assert not s.told.failed

    run(main(), LOOPS[0])


PROBE_ENDINGS = [
    ("time.sleep(60)", "took longer than 0.2 s for a golden input", "hung"),
    ("kill(11)", "SIGSEGV", "crashed"),
    (
        "send(Failed(command.id, Failure('EngineFailedError', 'broken'))); is_quiet = True",
        "failed a golden input: broken",
        "canary",
    ),
]


@pytest.mark.parametrize(("code", "message", "trouble"), PROBE_ENDINGS)
def test_a_worker_that_fails_its_golden_input_is_replaced(
    stand_in: WorkerSettings, code: str, message: str, trouble: str
) -> None:
    async def main() -> None:
        async with scene(stand_in, canary_s=0.05, probe_timeout_s=0.2) as s:
            await s.put(a=f"if isinstance(command, ProbeModel): {code}")
            await s.told.until(lambda: s.told.failed)
            assert message in s.told.failed[0][1]
            assert s.told.failed[0][0] in ("a", None)
            s.shelf.codes["a"] = ""
            assert await s.echo("a", 1)
            assert s.pool.status().restarts[trouble] >= 1

    run(main(), LOOPS[0])


def test_workers_take_their_classes_only(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with scene(stand_in, classes=frozenset({Priority.CRITICAL})) as s:
            await s.put(a="")
            bulk = asyncio.create_task(s.work.ask("a", saying("", 1), priority=Priority.BULK))
            (one,) = await s.work.ask("a", saying("", 2), priority=Priority.CRITICAL)
            assert isinstance(one, Answer)
            assert not bulk.done()
            bulk.cancel()

    run(main(), LOOPS[0])


@pytest.mark.parametrize("loop", LOOPS)
def test_stopping_lets_a_batch_end_within_the_deadline(
    stand_in: WorkerSettings, loop: Loop
) -> None:
    async def main() -> None:
        async with scene(stand_in, count=2) as s:
            await s.put(a="")
            soon = asyncio.create_task(s.work.ask("a", saying("time.sleep(0.2)", 1)))
            never = asyncio.create_task(s.work.ask("a", saying("time.sleep(60)", 1)))
            await s.work.until(lambda: s.work.taken == 2)
            await s.pool.stop(1.0)
            (one,), (other,) = await soon, await never
            assert isinstance(one, Answer)
            assert isinstance(other, WorkerFailedError)
            with pytest.raises(WorkerFailedError, match="stopped"):
                await s.pool.load("a")
            await s.pool.unload("a")
            assert s.pids() == []

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("moment_s", [0.0, 0.05, 0.3])
def test_a_cancelled_pool_leaves_nothing(
    stand_in: WorkerSettings, moment_s: float, loop: Loop
) -> None:
    async def main() -> None:
        before = open_descriptors()
        pool = Pool(PoolSettings(stand_in, 2), Work(), Shelf().open, Told())
        running = asyncio.create_task(pool.run())
        await asyncio.sleep(moment_s)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await pool.stop(1.0)
        assert children() == ""
        assert open_descriptors() == before

    run(main(), loop)


def test_a_pool_may_be_stopped_before_it_runs(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with scene(stand_in) as s:
            await s.pool.stop(1.0)
            assert s.pids() == []

    run(main(), LOOPS[0])
