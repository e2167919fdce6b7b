"""Versions come and go under calls, and a call is answered by exactly one of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.errors import (
    AgentError,
    EngineFailedError,
    ModelNotFoundError,
    ModelNotReadyError,
    UnavailableError,
    WorkerFailedError,
)
from edge_agent.serving import life_cycle
from edge_signing.errors import NotTrusted, SigningError

from .scene import Scene, call, play, until, who

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
            "worker": s.pools[0].refuses,
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
        loading = asyncio.create_task(s.life_cycle.load("acme/b", None))
        await until(lambda: len(s.pools) == 2)
        s.pools[1].refuses["sha256:acme/b@1.0.0"] = WorkerFailedError("crashed")
        with pytest.raises(WorkerFailedError):
            await loading
        await until(lambda: s.pools[1].is_stopped)
        assert [host.kind.owner for host in s.hosts] == [None]

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


def test_what_rests_is_loaded_once_for_all_who_ask(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.life_cycle.rest(entry, "it rests")
        assert (entry.state, entry.is_at_hand, entry.host) == ("UNAVAILABLE", True, None)
        assert list(s.hosts) == []
        replies = await asyncio.gather(*(s.ask(number) for number in range(20)))
        assert {who(reply) for reply in replies} == {A1}
        assert [pool.loads for pool in s.pools] == [[A1], [A1]]

    play(tmp_path, act)


def test_what_is_used_does_not_rest(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        await s.life_cycle.rest(entry, "it rests")
        assert entry.state == "READY"
        pool.running.set()
        await began

    play(tmp_path, act)


def test_a_model_stays_at_hand_while_it_is_woken(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.serve(name="acme/b")
        await s.life_cycle.rest(entry, "it rests")
        s.pools[0].loading.clear()
        asked = s.asking()
        await until(lambda: entry.state == "LOADING")
        assert entry.is_at_hand
        with pytest.raises(ModelNotReadyError, match="being loaded"):
            await s.life_cycle.wake(entry, 0.01)
        s.pools[0].loading.set()
        assert who(await asked) == A1

    play(tmp_path, act)


@pytest.mark.parametrize("error", [UnavailableError("no memory"), OSError("no disk")])
def test_a_wake_that_failed_is_tried_again_but_not_by_every_call(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.life_cycle.rest(entry, "it rests")
        s.bundles.problems[A1] = error
        opened = len(s.bundles.opened)
        for number in range(5):
            with pytest.raises(ModelNotReadyError, match="no "):
                await s.ask(number)
        assert len(s.bundles.opened) == opened + 1
        assert not entry.is_at_hand
        s.bundles.problems.clear()
        entry.sleeps_until = 0.0
        assert who(await s.ask()) == A1

    play(tmp_path, act)


def test_what_is_not_trusted_any_more_is_not_woken(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.life_cycle.rest(entry, "it rests")
        s.bundles.problems[A1] = NotTrusted("its key was revoked")
        for number in range(2):
            with pytest.raises(ModelNotReadyError, match="revoked"):
                await s.ask(number)
        assert (entry.state, entry.wakes) == ("UNAVAILABLE", False)

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("error", "wakes"),
    [(None, None), (NotTrusted("revoked"), False), (OSError("disk"), True)],
)
def test_a_reload_ends_what_cannot_be_opened_any_more(
    tmp_path: Path, error: AgentError | SigningError | OSError | None, wakes: bool | None
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        if error is not None:
            s.bundles.problems[A1] = error
        await s.life_cycle.recheck(entry)
        if error is None:
            assert entry.state == "READY"
        else:
            assert (entry.state, entry.wakes) == ("UNAVAILABLE", wakes)
            assert list(s.hosts) == []

    play(tmp_path, act)


def test_a_call_that_waits_for_a_version_gets_the_one_that_takes_its_place(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        old = await s.serve("1.0.0")
        await s.serve(name="acme/b")
        await s.life_cycle.rest(old, "it rests")
        s.pools[0].loading.clear()
        switching = asyncio.create_task(s.serve("2.0.0"))
        await until(lambda: A2 in s.pools[0].loads)
        waiting = s.asking()  # wakes the old one, behind the load of the new one
        again = asyncio.create_task(s.life_cycle.load("acme/a", "2.0.0"))
        await until(lambda: old.is_used)
        s.pools[0].loading.set()
        await asyncio.gather(switching, again)
        assert who(await waiting) == A2
        await until(lambda: old not in s.registry)
        assert A1 not in s.pools[0].models

    play(tmp_path, act)


def test_a_fault_of_old_workers_does_not_end_the_new_placement(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        first = asyncio.create_task(s.life_cycle.fail(entry, "broke shared workers", wakes=True))
        second = asyncio.create_task(s.life_cycle.fail(entry, "too late", wakes=False))
        await first
        s.placement.isolate("acme/a")
        assert who(await s.ask()) == A1
        await second
        assert entry.state == "READY"

    play(tmp_path, act)


def test_files_are_of_what_is_served_only(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        with pytest.raises(ModelNotFoundError):
            await s.life_cycle.files("sha256:other")

    play(tmp_path, act)


def test_not_ready_says_why() -> None:
    from .scene import entry

    one = entry()
    one.be("UNAVAILABLE", "it broke")
    assert str(life_cycle.not_ready(one)) == "acme/a 1.0.0 is not ready: it broke"
    assert call().model == "acme/a"
