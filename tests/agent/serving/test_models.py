"""What the server asks of the models as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from edge_agent.errors import ModelNotFoundError
from edge_agent.serving.models import Models
from edge_agent.serving.reconciler import Reconciler

from .scene import Scene, call, play, until, who


class Reached:
    """A reconciler that says how far it is."""

    def __init__(self) -> None:
        self.is_reached = True
        self.was_touched: list[str] = []

    def touched(self, name: str) -> None:
        self.was_touched.append(name)


def models(s: Scene, reached: Reached | None = None) -> Models:
    reconciler = cast("Reconciler", reached or Reached())
    return Models(s.registry, s.life_cycle, s.answering, reconciler)


async def two_versions(s: Scene) -> None:
    await s.serve("1.0.0")
    s.bundles.install("acme/a", "2.0.0")
    await s.life_cycle.load("acme/a", "2.0.0", keep=("1.0.0",))


def test_readiness_is_that_of_what_is_live(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        reached = Reached()
        asked = models(s, reached)
        assert asked.is_ready()
        await two_versions(s)
        await s.life_cycle.fail(s.registry.find("acme/a", "1.0.0"), "it broke")
        assert asked.is_ready()
        live = s.registry.find("acme/a", None)
        await s.life_cycle.rest(live, "it rests")
        assert asked.is_ready()
        await asked.infer(call())
        await s.life_cycle.fail(live, "it broke")
        assert not asked.is_ready()
        await asked.load("acme/a", None)
        assert asked.is_ready()
        reached.is_reached = False
        assert not asked.is_ready()

    play(tmp_path, act)


def test_loads_and_tells(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        asked = models(s)
        s.bundles.install("acme/a", "1.0.0")
        loaded = await asked.load("acme/a", None)
        assert (loaded.state, loaded.is_live, loaded.engine) == ("READY", True, "onnx")
        assert asked.model("acme/a", None) == loaded
        assert asked.models() == [loaded]
        with pytest.raises(ModelNotFoundError):
            asked.model("acme/b", None)

    play(tmp_path, act)


@pytest.mark.parametrize(("version", "left"), [(None, []), ("1.0.0", ["2.0.0"])])
def test_unloads_one_version_or_all(tmp_path: Path, version: str | None, left: list[str]) -> None:
    async def act(s: Scene) -> None:
        await two_versions(s)
        await models(s).unload("acme/a", version)
        assert [one.ref.version for one in s.registry] == left
        with pytest.raises(ModelNotFoundError):
            await models(s).unload("acme/a", "1.0.0")

    play(tmp_path, act)


def test_unloading_all_takes_what_drains_already_along(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await s.serve("1.0.0")
        pool = await s.running()
        began = s.asking()
        await until(lambda: pool.batches)
        await s.serve("2.0.0")
        s.tasks.create_task(models(s).unload("acme/a", None))
        await until(lambda: s.registry.find("acme/a", "1.0.0").state == "UNLOADING")
        pool.running.set()
        await began
        await until(lambda: not list(s.registry))

    play(tmp_path, act)


def test_counts_by_version(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        asked = models(s)
        await two_versions(s)
        await s.serve(name="acme/b")
        assert who(await asked.infer(call(version="1.0.0"))) == "sha256:acme/a@1.0.0"
        counted = {
            (one.ref.name, one.ref.version): one.execution_count
            for one in asked.statistics(None, None)
        }
        assert counted == {("acme/a", "1.0.0"): 1, ("acme/a", "2.0.0"): 0, ("acme/b", "1.0.0"): 0}
        assert len(asked.statistics("acme/a", None)) == 2
        assert [one.execution_count for one in asked.statistics("acme/a", "1.0.0")] == [1]
        with pytest.raises(ModelNotFoundError):
            asked.statistics("acme/c", None)

    play(tmp_path, act)
