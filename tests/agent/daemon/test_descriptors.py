"""Descriptors: the limit is raised, or connections are fewer."""

from __future__ import annotations

import logging
import resource

import pytest

from edge_agent.daemon import descriptors


class Limits:
    """The limits of a process.

    Args:
        soft: What counts.
        hard: How far it can be raised.
    """

    def __init__(self, soft: int, hard: int) -> None:
        self.now = (soft, hard)

    def get(self, _: int) -> tuple[int, int]:
        return self.now

    def set(self, _: int, limits: tuple[int, int]) -> None:
        self.now = limits


@pytest.mark.parametrize(
    ("soft", "hard", "possible", "after"),
    [
        (1024, 4096, 512, 1728),
        (1024, resource.RLIM_INFINITY, 512, 1728),
        (8192, 8192, 512, 8192),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 512, resource.RLIM_INFINITY),
        (256, 1024, 277, 1024),
        (256, 1727, 511, 1727),
        (100, 100, 1, 100),
    ],
)
def test_connections_are_as_many_as_there_are_descriptors_for(
    soft: int,
    hard: int,
    possible: int,
    after: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr(resource, "getrlimit", limits.get)
    monkeypatch.setattr(resource, "setrlimit", limits.set)
    with caplog.at_level(logging.WARNING):
        assert descriptors.connections(512, doors=3, workers=2) == possible
    assert limits.now == (after, hard)
    assert [one.msg for one in caplog.records] == ["fewer_connections"] * (possible < 512)
