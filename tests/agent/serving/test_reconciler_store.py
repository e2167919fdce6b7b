"""What is served follows the store, and what should be and can't be says why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.bundles import Bundle
from edge_agent.errors import EngineFailedError, ModelNotReadyError
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel
from edge_agent.serving.models import Models
from edge_agent.serving.service import ModelStatus
from edge_signing.errors import NotTrusted

from .reconciler_scene import NONE, FakeKept, made, served
from .scene import Scene, play, until, who

A1, A2 = "sha256:acme/a@1.0.0", "sha256:acme/a@2.0.0"


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
