"""Versions come and go under calls, and a call is answered by exactly one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.errors import (
    EngineFailedError,
    ModelNotFoundError,
    ModelNotReadyError,
    WorkerFailedError,
)
from edge_signing.errors import NotTrusted

from .scene import Scene, play, until, who

A1, A2 = "sha256:acme/a@1.0.0", "sha256:acme/a@2.0.0"


def test_what_is_loaded_answers(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        assert (entry.state, entry.engine) == ("READY", "onnx")
        assert who(await s.ask()) == A1

    play(tmp_path, act)


def test_a_switch_lets_the_old_version_end_what_it_began(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        old = await s.serve("1.0.0")
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        new = await s.serve("2.0.0")
        assert s.registry.live("acme/a") is new
        assert (old.state, old.is_used) == ("UNLOADING", True)
        assert A1 in pool.models
        pool.running.set()
        assert who(await began) == A1
        assert who(await s.ask()) == A2
        await until(lambda: old not in s.registry)
        assert pool.models == {A2}

    play(tmp_path, act)


def test_a_version_that_drains_takes_no_more_calls(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve("1.0.0")
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        await s.serve("2.0.0")
        with pytest.raises(ModelNotReadyError, match="another version"):
            await s.ask(version="1.0.0")
        pool.running.set()
        await began
        await until(lambda: pool.models == {A2})
        with pytest.raises(ModelNotFoundError):
            await s.ask(version="1.0.0")

    play(tmp_path, act)


def test_names_that_nobody_installed_leave_nothing(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for n in range(3):
            with pytest.raises(ModelNotFoundError):
                await s.life_cycle.load(f"acme/x{n}", None)
        assert not s.life_cycle._loads._locks

    play(tmp_path, act)


def test_a_version_that_drains_goes_on_when_it_is_loaded_again(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        old = await s.serve("1.0.0")
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        await s.serve("2.0.0")
        assert await s.serve("1.0.0") is old
        await s.serve("2.0.0")
        assert await s.serve("1.0.0") is old
        pool.running.set()
        assert who(await began) == A1
        await until(lambda: pool.models == {A1})
        assert who(await s.ask()) == A1
        assert s.registry.live("acme/a") is old

    play(tmp_path, act)


def test_swapping_to_and_fro_leaves_the_last(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        await s.life_cycle.load("acme/a", "1.0.0")
        for turn in range(20):
            calls = [s.asking(turn * 10 + number) for number in range(4)]
            wanted = ("2.0.0", "1.0.0")[turn % 2]
            await s.life_cycle.load("acme/a", wanted)
            assert (await s.ask(1000 + turn)).model.version == wanted
            for reply in await asyncio.gather(*calls):
                assert who(reply) == reply.model.digest
        await until(lambda: len(list(s.registry)) == 1)
        assert s.pools[0].models == {A1}
        await until(lambda: not s.life_cycle._ending)
        assert (s.life_cycle._waking, list(s.life_cycle._parts)) == ({}, [A1])

    play(tmp_path, act)


def test_other_bytes_of_the_same_version_take_its_place(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        old = await s.serve("1.0.0")
        new = await s.serve("1.0.0", bytes_="+other")
        assert who(await s.ask()) == new.ref.digest
        assert who(await s.ask(version="1.0.0")) == new.ref.digest
        await until(lambda: s.pools[0].models == {new.ref.digest})
        assert old not in s.registry
        back = await s.serve("1.0.0")
        assert who(await s.ask(2)) == back.ref.digest == A1

    play(tmp_path, act)


@pytest.mark.parametrize("kind", [EngineFailedError, NotTrusted])
@pytest.mark.parametrize("where", ["bundle", "selection", "worker"])
def test_a_load_that_fails_leaves_what_is_live(
    tmp_path: Path, where: str, kind: type[Exception]
) -> None:
    async def act(s: Scene) -> None:
        await s.serve("1.0.0")
        places = {
            "bundle": s.bundles.problems,
            "selection": s.selection.problems,
            "worker": s.refuses,
        }
        places[where][A2] = kind("broken")
        with pytest.raises(kind):
            await s.serve("2.0.0")
        assert who(await s.ask()) == A1
        del places[where][A2]
        await s.serve("2.0.0")
        assert who(await s.ask(2)) == A2

    play(tmp_path, act)


def test_a_first_load_that_fails_is_known_and_says_why(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.selection.problems[A1] = EngineFailedError("no memory")
        with pytest.raises(EngineFailedError):
            await s.serve()
        with pytest.raises(ModelNotReadyError, match="no memory"):
            await s.ask()
        assert s.pools == []
        del s.selection.problems[A1]
        await s.serve()
        assert who(await s.ask()) == A1

    play(tmp_path, act)


def test_a_load_that_fails_on_its_own_workers_leaves_none_of_them(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        s.placement.isolate("acme/b")
        s.bundles.install("acme/b", "1.0.0")
        s.refuses["sha256:acme/b@1.0.0"] = WorkerFailedError("crashed")
        with pytest.raises(WorkerFailedError):
            await s.life_cycle.load("acme/b", None)
        await until(lambda: s.pools[1].is_stopped)
        assert [host.kind.owner for host in s.hosts] == [None]

    play(tmp_path, act)


def test_a_trial_that_takes_long_leaves_the_live_version_alone(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        old = await s.serve("1.0.0")
        s.selection.trials[A2] = trial = asyncio.Event()
        loading = asyncio.create_task(s.serve("2.0.0"))
        await until(lambda: A2 in s.selection.tried)
        await s.life_cycle.rest(old, "it rests")
        assert who(await s.ask()) == A1
        s.placement.isolate("acme/a")
        await s.life_cycle.fail(old, "it moves", wakes=True)
        assert who(await s.ask(2)) == A1
        assert not loading.done()
        trial.set()
        assert (await loading).ref.version == "2.0.0"
        assert who(await s.ask(3)) == A2

    play(tmp_path, act)


def test_calls_wait_for_the_first_trial(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.selection.trials[A1] = trial = asyncio.Event()
        loading = asyncio.create_task(s.serve())
        await until(lambda: A1 in s.selection.tried)
        asked = s.asking()
        await until(lambda: s.registry.find("acme/a", None).is_used)
        trial.set()
        await loading
        assert who(await asked) == A1

    play(tmp_path, act)


def test_two_loads_of_the_same_bytes_are_one(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        first, second = await asyncio.gather(s.serve(), s.serve())
        assert first is second
        assert s.pools[0].loads == [A1]

    play(tmp_path, act)


def test_a_load_that_is_broken_off_can_be_done_again(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve(name="acme/b")
        s.pools[0].loading.clear()
        loading = asyncio.create_task(s.serve())
        await until(lambda: A1 in s.pools[0].loads)
        loading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await loading
        with pytest.raises(ModelNotReadyError):
            await s.ask()
        s.pools[0].loading.set()
        await s.serve()
        assert who(await s.ask()) == A1

    play(tmp_path, act)


def test_unloading_waits_for_what_is_being_answered(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        unloading = asyncio.create_task(s.life_cycle.unload(entry))
        await until(lambda: entry.state == "UNLOADING")
        with pytest.raises(ModelNotReadyError):
            await s.ask(1)
        assert not unloading.done()
        pool.running.set()
        assert who(await began) == A1
        await unloading
        assert pool.models == set()
        with pytest.raises(ModelNotFoundError):
            await s.ask(2)
        with pytest.raises(ModelNotFoundError):
            await s.life_cycle.unload(entry)

    play(tmp_path, act)


def test_an_unload_that_nobody_waits_for_goes_on(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        unloading = asyncio.create_task(s.life_cycle.unload(entry))
        await until(lambda: entry.state == "UNLOADING")
        unloading.cancel()
        pool.running.set()
        await began
        await until(lambda: entry not in s.registry)
        assert pool.models == set()

    play(tmp_path, act)


def test_a_worker_that_fails_to_free_a_model_ends_nothing_else(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.serve(name="acme/b")
        s.pools[0].unload_error = EngineFailedError("says the worker")
        await s.life_cycle.unload(entry)
        assert entry not in s.registry
        assert (await s.ask(name="acme/b")).model.name == "acme/b"

    play(tmp_path, act)


def test_models_that_end_together_end_their_workers_once(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entries = []
        for name in ("acme/a", "acme/b", "acme/c"):
            s.placement.isolate(name)
            entries.append(await s.serve(name=name))
        await asyncio.gather(*(s.life_cycle.unload(one) for one in entries))
        assert list(s.hosts) == []
        await until(lambda: all(pool.is_stopped for pool in s.pools))

    play(tmp_path, act)
