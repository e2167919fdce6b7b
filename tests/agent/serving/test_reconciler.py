"""What should be served is kept first, then made so, and what failed is tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.errors import EngineFailedError, StoreError
from edge_agent.serving import reconciler
from edge_agent.serving.desired import Stored
from edge_agent.serving.models import Models
from edge_agent.serving.reconciler import Reconciler
from edge_signing.errors import NotTrusted

from .reconciler_scene import NONE, FakeKept, made, served, wants
from .scene import Scene, play, until, who

A1, A2 = "sha256:acme/a@1.0.0", "sha256:acme/a@2.0.0"


def raised(error: Exception) -> dict[str, Stored]:
    raise error


def test_begins_with_what_is_kept_or_else_with_what_is_installed(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        kept = FakeKept(wants("acme/b"))
        for name in ("acme/a", "acme/b"):
            s.bundles.install(name, "1.0.0")
        first = made(s, kept)
        await first.begin()
        assert served(s) == ["acme/b@1.0.0"]
        assert first.is_reached
        kept.kept = None
        await made(s, kept).begin()
        assert served(s) == ["acme/a@1.0.0", "acme/b@1.0.0"]

    play(tmp_path, act)


def test_serves_what_is_shipped_where_nothing_is_installed(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("shipped", "1.0.0")
        one = Reconciler(s.registry, s.life_cycle, FakeKept(), dict, ("shipped",), s.log)
        await one.begin()
        assert served(s) == ["shipped@1.0.0"]

    play(tmp_path, act)


def test_where_the_state_is_damaged_nothing_is_served_until_there_is_one(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        kept = FakeKept()
        kept.problem = StoreError("is damaged")
        one = made(s, kept)
        await one.begin()
        assert (served(s), one.is_reached) == ([], False)
        assert s.logged("desired_state_lost") == [{"reason": "is damaged"}]
        kept.problem = None
        await one.apply(wants("acme/a"))
        assert (served(s), one.is_reached) == (["acme/a@1.0.0"], True)

    play(tmp_path, act)


@pytest.mark.parametrize("what", ["state", "store"])
def test_what_could_not_be_read_is_read_again(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_FIRST_RETRY_S", 0.001)

    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        kept, problems = FakeKept(), [StoreError("can't be read")]
        one = made(s, kept, ("shipped",))
        if what == "state":
            kept.problem = problems[0]
        else:
            whole = one._stored
            one._stored = lambda: whole() if not problems else raised(problems[0])
        await one.begin()
        assert (list(s.registry), one.is_reached) == ([], False)
        kept.problem = None
        problems.clear()
        trying = asyncio.create_task(one.run())
        await until(lambda: one.is_reached)
        assert served(s) == ["acme/a@1.0.0"]
        trying.cancel()

    play(tmp_path, act)


def test_an_alias_answers_all_the_time(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        one = made(s, FakeKept())
        await one.apply(wants("acme/a@1.0.0", pinned="acme/a@1.0.0"))
        (pool,) = s.pools
        pool.loading.clear()
        applying = asyncio.create_task(one.apply(wants("acme/a@2.0.0", pinned="acme/a@2.0.0")))
        await until(lambda: A2 in pool.loads)
        assert who(await s.ask(1, name="pinned")) == A1
        pool.loading.set()
        await applying
        assert who(await s.ask(2, name="pinned")) == A2
        assert served(s) == ["acme/a@2.0.0"]

    play(tmp_path, act)


def test_an_alias_stays_where_what_it_shall_mean_failed(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        s.bundles.install("acme/b", "1.0.0")
        one = made(s, FakeKept())
        await one.apply(wants("acme/a@1.0.0", "acme/b", p="acme/a@1.0.0", moved="acme/b"))
        s.selection.problems[A2] = EngineFailedError("no memory")
        done = await one.apply(
            wants("acme/a@2.0.0", p="acme/a@2.0.0", moved="acme/a", fresh="acme/a")
        )
        failed = [(done.steps[n].action, done.steps[n].model) for n in sorted(done.failures)]
        assert failed == [
            ("load", "acme/a"),
            ("alias", "moved"),
            ("alias", "p"),
            ("unload", "acme/a"),
            ("unload", "acme/b"),
        ]
        assert who(await s.ask(1, name="p")) == A1
        assert (await s.ask(2, name="moved")).model.name == "acme/b"
        assert who(await s.ask(3, name="fresh")) == A1
        s.selection.problems.clear()
        await one._try_again()
        assert one.is_reached
        assert served(s) == ["acme/a@2.0.0"]
        for alias in ("p", "moved", "fresh"):
            assert who(await s.ask(4, name=alias)) == A2

    play(tmp_path, act)


def test_a_retry_leaves_alone_what_was_changed_by_hand(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for name in ("acme/a", "acme/b", "acme/c"):
            s.bundles.install(name, "1.0.0")
        s.bundles.install("acme/b", "2.0.0")
        s.selection.problems[A1] = EngineFailedError("no memory")
        one = made(s, FakeKept())
        models = Models(s.registry, s.life_cycle, s.answering, one)
        await one.apply(wants("acme/a", "acme/b@2.0.0", "acme/c"))
        await models.load("acme/b", "1.0.0")
        await models.unload("acme/c", None)
        assert not one.is_reached
        s.selection.problems.clear()
        await one._try_again()
        await until(lambda: served(s) == ["acme/a@1.0.0", "acme/b@1.0.0"])
        assert one.is_reached

    play(tmp_path, act)


@pytest.mark.parametrize("mended", ["loaded", "unloaded"])
def test_what_was_mended_by_hand_has_not_failed_any_more(tmp_path: Path, mended: str) -> None:
    async def act(s: Scene) -> None:
        for version in ("2.0.0", "1.0.0"):
            s.bundles.install("acme/a", version)
        one = made(s, FakeKept())
        models = Models(s.registry, s.life_cycle, s.answering, one)
        await one.apply(wants("acme/a@1.0.0", a="acme/a@1.0.0"))
        s.selection.problems[A2] = EngineFailedError("no memory")
        await one.apply(wants("acme/a@2.0.0", a="acme/a@2.0.0"))
        assert not models.is_ready()
        if mended == "unloaded":
            await models.unload("acme/a", None)
        else:
            s.selection.problems.clear()
            await models.load("acme/a", "2.0.0")
            assert who(await s.ask(name="a")) == A2
        assert models.is_ready()

    play(tmp_path, act)


def test_applying_keeps_switches_and_unloads_and_does_nothing_twice(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        s.bundles.install("acme/b", "1.0.0")
        kept = FakeKept()
        one = made(s, kept)
        await one.begin()
        assert served(s) == ["acme/a@2.0.0", "acme/b@1.0.0"]
        desired = wants("acme/a@1.0.0", a="acme/a")
        shown = await one.apply(desired, is_dry_run=True)
        assert [step.action for step in shown.steps] == ["load", "alias", "unload"]
        assert kept.kept is None
        assert served(s) == ["acme/a@2.0.0", "acme/b@1.0.0"]
        done = await one.apply(desired)
        assert (done.steps, done.failures) == (shown.steps, {})
        assert kept.kept == one.desired == desired
        assert who(await s.ask(name="a")) == "sha256:acme/a@1.0.0"
        assert (await one.apply(desired)).steps == ()
        await until(lambda: served(s) == ["acme/a@1.0.0"])

    play(tmp_path, act)


def test_what_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        kept = FakeKept()
        one = made(s, kept)
        await one.begin()
        kept.problem = StoreError("can't be written")
        with pytest.raises(StoreError):
            await one.apply(NONE)
        assert served(s) == ["acme/a@1.0.0"]
        assert one.desired is None

    play(tmp_path, act)


@pytest.mark.parametrize("error", [EngineFailedError("no memory"), NotTrusted("revoked")])
def test_one_failure_stops_nothing_else(tmp_path: Path, error: Exception) -> None:
    async def act(s: Scene) -> None:
        for name in ("acme/a", "acme/b"):
            s.bundles.install(name, "1.0.0")
        s.selection.problems["sha256:acme/a@1.0.0"] = error
        one = made(s, FakeKept())
        done = await one.apply(wants("acme/a", "acme/b"))
        assert done.failures == {0: str(error)}
        assert served(s) == ["acme/b@1.0.0"]
        assert not one.is_reached
        assert not Models(s.registry, s.life_cycle, s.answering, one).is_ready()

    play(tmp_path, act)


def test_what_failed_and_is_not_desired_any_more_disappears(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        s.selection.problems["sha256:acme/a@1.0.0"] = EngineFailedError("no memory")
        one = made(s, FakeKept())
        await one.apply(wants("acme/a"))
        assert [entry.state for entry in s.registry] == ["UNAVAILABLE"]
        await one.apply(NONE)
        assert list(s.registry) == []
        assert one.is_reached

    play(tmp_path, act)


def test_what_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_FIRST_RETRY_S", 0.001)

    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        s.selection.problems["sha256:acme/a@1.0.0"] = EngineFailedError("no memory")
        one = made(s, FakeKept())
        await one.begin()
        trying = asyncio.create_task(one.run())
        await until(lambda: len(s.logged("model_failed")) > 2)
        del s.selection.problems["sha256:acme/a@1.0.0"]
        await until(lambda: one.is_reached)
        assert served(s) == ["acme/a@1.0.0"]
        trying.cancel()

    play(tmp_path, act)


def test_a_state_that_is_forgotten_gives_way_to_what_is_installed(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        kept = FakeKept(NONE)
        one = made(s, kept)
        await one.begin()
        assert served(s) == []
        await one.forget()
        assert (kept.kept, served(s)) == (None, ["acme/a@1.0.0"])

    play(tmp_path, act)


def test_an_unreadable_store_is_told(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        def stored() -> dict[str, Stored]:
            raise StoreError("can't be read")

        await Reconciler(s.registry, s.life_cycle, FakeKept(), stored, (), s.log).begin()
        assert s.logged("store_unreadable")[0] == {"reason": "can't be read"}

    play(tmp_path, act)
