"""How many workers there are, for which classes, and how much each may hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edge_agent.app import Agent
from edge_agent.calls import Priority
from edge_agent.config import AgentConfig
from edge_agent.daemon.pools import make_host, worker_settings
from edge_agent.serve_config import ClassConfig, ServeConfig
from edge_agent.serving.hosts import Host, HostKind
from edge_agent.workers.settings import PoolSettings
from edge_agent.workers.work import ModelFiles

EVERY = frozenset(Priority)
BULK = frozenset({Priority.BULK})


class Deaf:
    """Hears of no worker."""

    def on_worker_failed(self, digest: str | None, reason: str) -> None: ...

    def on_recycled(self, reason: str) -> None: ...

    def on_model_lost(self, digest: str, error: Exception) -> None: ...


def config(serve: ServeConfig) -> AgentConfig:
    return AgentConfig(Path("/none"), Path("/none"), serve=serve)


PROFILE = Agent(config(ServeConfig()), print).profile._replace(threads=4, max_memory_mib=400)


def pools(serve: ServeConfig) -> list[PoolSettings]:
    async def never(digest: str) -> ModelFiles:
        raise AssertionError(digest)

    async def made() -> Host:
        return make_host(HostKind("onnx"), config(serve), PROFILE, never, Deaf())

    host = asyncio.run(made())
    return [pool._slots[0]._settings for pool in host.pools]


@pytest.mark.parametrize(
    ("classes", "groups"),
    [
        ({}, [EVERY]),
        ({"bulk": ClassConfig()}, [EVERY]),
        ({"bulk": ClassConfig(nice=10)}, [EVERY - BULK, BULK]),
        ({"bulk": ClassConfig(cpus=(1,))}, [EVERY - BULK, BULK]),
        (
            {one.name.lower(): ClassConfig(nice=1) for one in Priority},
            [frozenset({one}) for one in Priority],
        ),
    ],
)
def test_a_class_with_settings_has_workers_of_its_own(
    classes: dict[str, ClassConfig], groups: list[frozenset[Priority]]
) -> None:
    made = pools(ServeConfig(classes=classes, workers=2))  # type: ignore[arg-type]
    assert [one.classes for one in made] == groups
    assert {one.count for one in made if one.worker.nice or one.worker.cpus} <= {1}
    for one in made:
        (own,) = {classes.get(each.name.lower(), ClassConfig()) for each in one.classes}
        assert (one.worker.nice, one.worker.cpus) == (own.nice, own.cpus)


@pytest.mark.parametrize(("workers", "threads"), [(1, 4), (2, 2), (3, 1), (8, 1)])
def test_workers_share_the_threads(workers: int, threads: int) -> None:
    made = worker_settings(config(ServeConfig(workers=workers)), PROFILE, "onnx")
    assert made.threads == threads


@pytest.mark.parametrize(("mib", "soft", "hard"), [(None, 266, 400), (100, 100, 150)])
def test_memory_is_the_owners_or_the_profiles(mib: int | None, soft: int, hard: int) -> None:
    (made,) = pools(ServeConfig(worker_memory_mib=mib))
    assert (made.memory_mib, made.worker.memory_limit_mib) == (soft, hard)
