"""What should be served is kept first, then made so, and what failed is tried again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from edge_agent.bundles import Bundle
from edge_agent.errors import EngineFailedError, ModelNotReadyError, StoreError
from edge_agent.serving import reconciler
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel, Stored
from edge_agent.serving.models import Models
from edge_agent.serving.reconciler import Reconciler
from edge_agent.serving.service import ModelStatus
from edge_signing.errors import NotTrusted

from .scene import Scene, play, until, who

NONE: Final = Desired(SCHEMA, ())
A1, A2 = "sha256:acme/a@1.0.0", "sha256:acme/a@2.0.0"


class FakeKept:
    """Keeps the desired state, unless there is a problem."""

    def __init__(self, kept: Desired | None = None) -> None:
        self.kept = kept
        self.problem: Exception | None = None

    def read(self) -> Desired | None:
        if self.problem:
            raise self.problem
        return self.kept

    def write(self, desired: Desired) -> None:
        if self.problem:
            raise self.problem
        self.kept = desired

    def forget(self) -> None:
        if self.problem:
            raise self.problem
        self.kept = None


def made(s: Scene, kept: FakeKept, otherwise: tuple[str, ...] = ()) -> Reconciler:
    def stored() -> dict[str, Stored]:
        found = {}
        for name, version in s.bundles.active.items():
            if name not in otherwise:
                refs = [one for one in s.bundles.refs.values() if one.name == name]
                bundles = tuple((one.version, one.digest) for one in refs)
                found[name] = Stored((version, dict(bundles)[version]), bundles)
        return found

    return Reconciler(s.registry, s.life_cycle, kept, stored, otherwise, s.log)


def wants(*names: str, **aliases: str) -> Desired:
    models = (name.partition("@") for name in names)
    return Desired(SCHEMA, tuple(DesiredModel(n, v or None) for n, _, v in models), aliases)


def raised(error: Exception) -> dict[str, Stored]:
    raise error


def served(s: Scene) -> list[str]:
    return [f"{one.ref.name}@{one.ref.version}" for one in s.registry if one.state == "READY"]


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


def test_follows_the_store_as_a_start_would(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("shipped", "1.0.0")
        one = made(s, FakeKept(), ("shipped",))

        async def follows(*expected: str) -> None:
            assert (await one.forget()).failures == {}
            assert served(s) == list(expected)
            assert one.is_reached

        await one.begin()
        await follows("shipped@1.0.0")
        s.bundles.install("acme/a", "1.0.0")
        await follows("acme/a@1.0.0")
        s.bundles.install("acme/a", "2.0.0")
        await follows("acme/a@2.0.0")
        s.bundles.remove("acme/a", "2.0.0")
        await follows("acme/a@1.0.0")
        s.bundles.install("acme/a", "1.0.0", "other bytes")
        await follows("acme/a@1.0.0")
        assert who(await s.ask()) == A1 + "other bytes"
        s.bundles.remove("acme/a", "1.0.0")
        await follows("shipped@1.0.0")

    play(tmp_path, act)


def test_a_removed_version_answers_until_the_next_is_ready(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for version in ("1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        one = made(s, FakeKept())
        await one.begin()
        s.bundles.remove("acme/a", "2.0.0")
        (pool,) = s.pools
        pool.loading.clear()
        following = asyncio.create_task(one.forget())
        await until(lambda: A1 in pool.loads)
        assert who(await s.ask(1)) == A2
        pool.loading.set()
        await following
        assert who(await s.ask(2)) == A1
        assert served(s) == ["acme/a@1.0.0"]

    play(tmp_path, act)


@pytest.mark.parametrize("is_started", [True, False])
def test_what_left_the_store_is_not_served_though_it_is_desired(
    tmp_path: Path, is_started: bool
) -> None:
    desired = Desired(
        SCHEMA,
        (DesiredModel("acme/a", "2.0.0", ("1.0.0", "0.1.0")),),
        {"new": "acme/a", "old": "acme/a@1.0.0"},
    )

    async def act(s: Scene) -> None:
        for version in ("0.1.0", "1.0.0", "2.0.0"):
            s.bundles.install("acme/a", version)
        one = made(s, FakeKept(desired))
        models = Models(s.registry, s.life_cycle, s.answering, one)
        if is_started:
            await one.begin()
            assert models.is_ready()
        for version in ("2.0.0", "1.0.0"):
            s.bundles.remove("acme/a", version)
        if is_started:
            done = await one.apply(desired)
            failed = {(done.steps[n].action, done.steps[n].version) for n in done.failures}
            assert failed == {("add", "1.0.0"), ("load", "2.0.0")}
        else:
            await one.begin()
        assert served(s) == ["acme/a@0.1.0"]
        assert not models.is_ready()
        told = {facts["version"]: facts["reason"] for facts in s.logged("model_failed")}
        assert set(told) == {"1.0.0", "2.0.0"}
        assert "'acme/a@2.0.0' is installed" in told["2.0.0"]
        listed = {status.ref.version: status for status in models.models()}
        assert {v: status.state for v, status in listed.items()} == {
            "0.1.0": "READY",
            "1.0.0": "UNAVAILABLE",
            "2.0.0": "UNAVAILABLE",
        }
        assert listed["2.0.0"].reason == told["2.0.0"]
        assert models.model("acme/a", None) == models.model("new", None) == listed["2.0.0"]
        for name in ("acme/a", "new", "old"):
            with pytest.raises(ModelNotReadyError, match="is not ready: no model 'acme/a@"):
                await s.ask(name=name)
        with pytest.raises(ModelNotReadyError, match="is not ready: no model 'acme/a@2"):
            await s.ask(version="2.0.0")
        assert who(await s.ask(version="0.1.0")) == "sha256:acme/a@0.1.0"

    play(tmp_path, act)


def test_what_is_not_trusted_at_the_start_is_listed_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        s.bundles.problems[A1] = NotTrusted("its key was revoked")
        one = made(s, FakeKept())
        models = Models(s.registry, s.life_cycle, s.answering, one)
        await one.begin()
        (status,) = models.models()
        assert (status.ref.version, status.state) == ("1.0.0", "UNAVAILABLE")
        assert (status.reason, status.is_live) == ("its key was revoked", True)
        with pytest.raises(ModelNotReadyError, match="revoked"):
            await s.ask()
        s.bundles.problems.clear()
        seen: list[ModelStatus] = []
        opening = s.bundles.open

        def watched(reference: str) -> Bundle:
            seen.append(models.model("acme/a", None))
            return opening(reference)

        monkeypatch.setattr(s.bundles, "open", watched)
        await one._try_again()
        assert seen == [status]  # it has failed until it succeeds
        assert [one.state for one in models.models()] == ["READY"]
        assert s.registry.unmet == {}
        await s.ask()

    play(tmp_path, act)


def test_what_fails_over_its_engine_is_live_and_says_why(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        s.bundles.install("acme/a", "1.0.0")
        s.selection.problems[A1] = EngineFailedError("no memory")
        one = made(s, FakeKept())
        models = Models(s.registry, s.life_cycle, s.answering, one)
        await one.begin()
        (status,) = models.models()
        assert (status.state, status.reason, status.is_live) == ("UNAVAILABLE", "no memory", True)
        with pytest.raises(ModelNotReadyError, match="no memory"):
            await s.ask()
        assert not models.is_ready()

    play(tmp_path, act)


def test_what_only_begins_to_load_is_known(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for name in ("acme/a", "acme/b"):
            s.bundles.install(name, "1.0.0")
        s.selection.trials[A1] = asyncio.Event()
        one = made(s, FakeKept())
        beginning = asyncio.create_task(one.begin())
        await until(lambda: s.selection.tried)
        states = {status.ref.name: status.state for status in s.registry.models()}
        assert states == {"acme/a": "LOADING", "acme/b": "LOADING"}
        with pytest.raises(ModelNotReadyError, match=r"acme/b 1\.0\.0 is not ready: it is being"):
            await s.ask(name="acme/b")
        s.selection.trials[A1].set()
        await beginning
        assert served(s) == ["acme/a@1.0.0", "acme/b@1.0.0"]

    play(tmp_path, act)


def test_a_dry_run_says_what_could_not_be_opened(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        for name in ("acme/a", "acme/b"):
            s.bundles.install(name, "1.0.0")
        s.bundles.problems["sha256:acme/b@1.0.0"] = NotTrusted("revoked")
        one = made(s, FakeKept(NONE))
        await one.begin()
        models = (DesiredModel("acme/a", None, ("9.9.9",)), DesiredModel("acme/b"))
        shown = await one.apply(Desired(SCHEMA, models), is_dry_run=True)
        said = {shown.steps[n].version: reason for n, reason in shown.failures.items()}
        assert said == {"9.9.9": "no model 'acme/a@9.9.9' is installed", None: "revoked"}
        assert s.registry.models() == []
        assert one.is_reached

    play(tmp_path, act)
