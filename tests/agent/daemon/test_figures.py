"""What the gauges are told of the rooms."""

from __future__ import annotations

import asyncio
from pathlib import Path

from edge_agent.cache.cache import ResultCache
from edge_agent.daemon.figures import Figures
from edge_agent.serve_config import CacheConfig
from edge_agent.serving.hosts import Host, HostKind, Hosts
from edge_agent.serving.registry import Registry


def no_host(kind: HostKind) -> Host:
    raise KeyError(kind)


def figures(cache: ResultCache) -> Figures:
    return Figures(Registry(), Hosts(no_host, asyncio.TaskGroup()), cache)


def test_a_cache_that_is_switched_off_has_none(tmp_path: Path) -> None:
    assert figures(ResultCache(tmp_path / "cache", CacheConfig(mib=0))).cache() is None


def test_a_cache_whose_database_is_not_there_is_down(tmp_path: Path) -> None:
    found = figures(ResultCache(tmp_path / "cache", CacheConfig())).cache()
    assert found is not None
    assert (found.is_up, found.errors) == (False, 0)
