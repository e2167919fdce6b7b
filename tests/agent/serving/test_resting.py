"""Versions rest, wake, move and end while calls wait for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge_agent.errors import (
    AgentError,
    MismatchError,
    ModelNotFoundError,
    ModelNotReadyError,
    StoreError,
    UnavailableError,
)
from edge_agent.serving import life_cycle
from edge_signing.errors import BundleUnreadable, NotTrusted, SigningError

from .scene import Scene, play, until, who
from .scene import entry as made

A1, A2 = "sha256:acme/a@1.0.0", "sha256:acme/a@2.0.0"


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
        assert s.registry.status(entry).state == "READY"
        with pytest.raises(ModelNotReadyError, match="being loaded"):
            await s.life_cycle.wake(entry, 0.01)
        s.pools[0].loading.set()
        assert who(await asked) == A1

    play(tmp_path, act)


@pytest.mark.parametrize("error", [UnavailableError("no memory"), OSError("no disk")])
def test_a_wake_that_failed_is_tried_again_but_not_by_every_call(
    tmp_path: Path, error: Exception
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
    "error",
    [NotTrusted("revoked"), MismatchError("not what was signed"), ModelNotFoundError("removed")],
)
def test_a_reload_ends_what_is_not_trusted_any_more(
    tmp_path: Path, error: AgentError | SigningError
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        s.bundles.problems[A1] = error
        is_revoked = await s.life_cycle.recheck()
        assert is_revoked is isinstance(error, SigningError)
        assert (entry.state, entry.wakes) == ("UNAVAILABLE", False)
        await until(lambda: not list(s.hosts))

    play(tmp_path, act)


@pytest.mark.parametrize(
    "error", [StoreError("its index is damaged"), OSError("disk"), BundleUnreadable("disk"), None]
)
def test_a_reload_leaves_what_serves_where_its_files_cannot_be_read(
    tmp_path: Path, error: StoreError | OSError | SigningError | None
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        resting = await s.serve(name="acme/b")
        await s.life_cycle.rest(resting, "it rests")
        if error is not None:
            s.bundles.problems |= {A1: error, resting.ref.digest: error}
        assert not await s.life_cycle.recheck()
        assert entry.state == "READY"
        assert resting.is_at_hand
        told = [(one["model"], one["reason"]) for one in s.logged("model_not_rechecked")]
        assert told == ([("acme/a", str(error)), ("acme/b", str(error))] if error else [])
        assert who(await s.ask()) == A1

    play(tmp_path, act)


@pytest.mark.parametrize("state", ["loads", "wakes"])
def test_what_is_revoked_while_it_loads_never_answers(tmp_path: Path, state: str) -> None:
    async def act(s: Scene) -> None:
        await s.serve(name="acme/b")
        loading: asyncio.Task[Any]
        if state == "wakes":
            await s.life_cycle.rest(await s.serve(), "it rests")
            loading = asyncio.create_task(s.life_cycle.wake(s.registry.find("acme/a", None)))
        else:
            loading = asyncio.create_task(s.serve())
        (pool,) = s.pools
        pool.loading.clear()
        times = pool.loads.count(A1) + 1
        await until(lambda: pool.loads.count(A1) == times)
        waiting = s.asking()
        await until(lambda: s.registry.find("acme/a", None).is_used)
        s.bundles.problems[A1] = NotTrusted("its key was revoked")
        assert await s.life_cycle.recheck()
        pool.loading.set()
        await asyncio.wait({loading})
        assert isinstance(loading.exception(), NotTrusted | ModelNotReadyError)
        with pytest.raises(ModelNotReadyError, match="revoked"):
            await waiting
        await until(lambda: pool.models == {"sha256:acme/b@1.0.0"})
        assert not s.registry.find("acme/a", None).wakes

    play(tmp_path, act)


def test_what_is_revoked_during_the_trial_of_a_later_version_ends_at_once(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve()
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        queued = s.asking(1)
        await until(lambda: s.registry.find("acme/a", None).host is not None)
        pool.loading.clear()
        switching = asyncio.create_task(s.serve("2.0.0"))
        await until(lambda: A2 in pool.loads)
        s.bundles.problems[A1] = NotTrusted("its key was revoked")
        assert await s.life_cycle.recheck()
        for call in (s.asking(2), queued):
            with pytest.raises(ModelNotReadyError, match="revoked"):
                await call
        assert not switching.done()
        pool.running.set()
        await began
        pool.loading.set()
        await switching
        assert who(await s.ask()) == A2
        await until(lambda: pool.models == {A2})

    play(tmp_path, act)


def test_what_rests_is_not_at_hand_any_more_once_it_is_revoked(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.life_cycle.rest(entry, "it rests")
        s.bundles.problems[A1] = NotTrusted("its key was revoked")
        await s.life_cycle.recheck()
        assert (entry.is_at_hand, entry.reason) == (False, "its key was revoked")

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("error", "wakes"), [(NotTrusted("revoked"), False), (UnavailableError("no memory"), True)]
)
def test_a_load_of_what_rests_that_fails_keeps_it_at_hand_where_it_may_heal(
    tmp_path: Path, error: Exception, wakes: bool
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        await s.life_cycle.rest(entry, "it rests")
        s.refuses[A1] = error
        with pytest.raises(type(error)):
            await s.life_cycle.load("acme/a", None)
        assert (entry.state, entry.wakes) == ("UNAVAILABLE", wakes)

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
    one = made()
    one.be("UNAVAILABLE", "it broke")
    assert str(life_cycle.not_ready(one)) == "acme/a 1.0.0 is not ready: it broke"
