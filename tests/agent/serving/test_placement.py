"""Which workers a model gets, and what its queue is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from edge_agent.description import TensorSpec
from edge_agent.scheduler.limits import ModelQueueSettings
from edge_agent.serve_config import ModelConfig, ServeConfig

from .scene import Scene, play

ISOLATED = ServeConfig(models={"acme/a": ModelConfig(isolated=True)})


@pytest.mark.parametrize(
    ("config", "isolated", "owners"),
    [
        (ServeConfig(), (), [None]),
        (ServeConfig(), ("acme/a",), ["acme/a", None]),
        (ISOLATED, (), ["acme/a", None]),
        (ServeConfig(isolation="bundle"), (), ["acme/a", "acme/b"]),
    ],
)
def test_models_share_workers_unless_told_otherwise(
    tmp_path: Path, config: ServeConfig, isolated: tuple[str, ...], owners: list[str | None]
) -> None:
    async def act(s: Scene) -> None:
        s.config = config
        for name in isolated:
            s.placement.isolate(name)
        for name in ("acme/a", "acme/b"):
            await s.serve(name=name)
        assert [host.kind.owner for host in s.hosts] == owners

    play(tmp_path, act)


def test_the_queue_is_told_what_is_configured_and_measured(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        assert entry.host
        queue = entry.host.scheduler._models[entry.ref.digest]
        assert queue.settings == ModelQueueSettings(1.0)
        s.config = ServeConfig(models={"acme/a": ModelConfig(weight=3.0, max_batch=4)})
        s.placement.reconfigure(entry)
        assert queue.settings == ModelQueueSettings(1.0, max_batch=4, weight=3.0)
        await s.life_cycle.rest(entry, "it rests")
        s.placement.reconfigure(entry)

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("inputs", "sizes_vary"),
    [
        ([[1, 3]], False),
        ([["batch", 3]], False),
        ([["batch", "tokens"]], True),
        ([["tokens"]], True),
        ([[1], [1, "tokens"]], True),
    ],
)
def test_the_queue_is_told_whether_inputs_vary_in_size(
    tmp_path: Path, inputs: list[list[int | str]], sizes_vary: bool
) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        assert entry.host
        specs = tuple(
            TensorSpec(name=f"x{place}", dtype="float32", shape=tuple(shape))
            for place, shape in enumerate(inputs)
        )
        output = TensorSpec(name="y", dtype="float32", shape=(*specs[0].shape[:1], 2))
        entry.description = structs.replace(entry.description, inputs=specs, outputs=(output,))
        s.placement.reconfigure(entry)
        queue = entry.host.scheduler._models[entry.ref.digest]
        assert queue.settings.sizes_vary is sizes_vary

    play(tmp_path, act)


def test_workers_end_with_the_last_model_on_them(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        first, second = await s.serve(name="acme/a"), await s.serve(name="acme/b")
        await s.life_cycle.unload(first)
        assert len(list(s.hosts)) == 1
        await s.life_cycle.unload(second)
        assert list(s.hosts) == []

    play(tmp_path, act)
