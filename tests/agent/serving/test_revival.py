"""What broke is tried again: not at once, and less often each time that it breaks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from edge_agent.errors import (
    EngineFailedError,
    GoldenMismatchError,
    ModelNotReadyError,
    WorkerFailedError,
)
from edge_agent.serving import entry as entries
from edge_agent.serving import life_cycle, revival
from edge_agent.serving.entry import FIRST_PAUSE_S, LAST_PAUSE_S
from edge_agent.serving.revival import Revival
from edge_signing.errors import NotTrusted
from tests.agent.serving.scene import Scene, entry, play, who

A1 = "sha256:acme/a@1.0.0"


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (entries, life_cycle):
        monkeypatch.setattr(module, "monotonic", clock)
    monkeypatch.setattr(revival, "_EVERY_S", 0.001)
    return clock


async def look(s: Scene) -> None:
    """Has the revival make some rounds."""
    trying = asyncio.create_task(Revival(s.registry, s.life_cycle).run())
    await asyncio.sleep(0.05)
    trying.cancel()
    with suppress(asyncio.CancelledError):
        await trying


def test_pauses_double_to_a_longest_one_and_are_short_again_after_a_good_time(
    clock: Clock,
) -> None:
    one, pauses = entry(), []
    for _ in range(9):
        for _ in range(2):  # told twice of one failure
            one.be("UNAVAILABLE", "it broke")
        pauses.append(one.sleeps_until - clock.now)
        clock.now = one.sleeps_until + 1
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    clock.now += LAST_PAUSE_S
    one.be("UNAVAILABLE", "it broke")
    assert one.sleeps_until - clock.now == FIRST_PAUSE_S


def test_what_broke_is_left_alone_and_then_revived(tmp_path: Path, clock: Clock) -> None:
    async def act(s: Scene) -> None:
        one = await s.serve("1.0.0")
        for pause_s in (5.0, 10.0):
            await s.life_cycle.fail(one, "it broke")
            clock.now += pause_s - 0.01
            await look(s)
            assert one.is_out_of_service
            clock.now += 0.02
            await look(s)
            assert one.state == "READY"

    play(tmp_path, act)


@pytest.mark.parametrize(
    "error",
    [GoldenMismatchError("it answers wrongly"), WorkerFailedError("crashed"), OSError("no disk")],
)
@pytest.mark.parametrize("place", ["bundles", "selection"])
def test_a_revival_that_fails_waits_for_longer(
    tmp_path: Path, clock: Clock, error: Exception, place: str
) -> None:
    async def act(s: Scene) -> None:
        problems = {"bundles": s.bundles.problems, "selection": s.selection.problems}[place]
        one = await s.serve("1.0.0")
        await s.life_cycle.fail(one, "it broke")
        problems[A1] = error
        for pause_s in (5.0, 10.0, 20.0):
            clock.now += pause_s
            await look(s)
            assert s.registry.status(one).state == "UNAVAILABLE"
            assert one.sleeps_until == clock.now + 2 * pause_s
            assert s.logged("model_failed")[-1]["reason"] == str(error)
        opened = len(s.bundles.opened)
        with pytest.raises(ModelNotReadyError, match=str(error)):
            await s.ask()
        await look(s)
        assert len(s.bundles.opened) == opened
        problems.clear()
        clock.now += 40
        await look(s)
        assert who(await s.ask()) == A1
        assert [event for event, _ in s.events][-1] == "model_live"

    play(tmp_path, act)


def test_who_broke_again_after_a_load_by_hand_pauses_anew(tmp_path: Path, clock: Clock) -> None:
    async def act(s: Scene) -> None:
        one = await s.serve("1.0.0")
        await s.life_cycle.fail(one, "it broke")
        clock.now += 1
        await s.life_cycle.load("acme/a", "1.0.0")
        clock.now += 1
        await s.life_cycle.fail(one, "it broke")
        assert one.sleeps_until == clock.now + 2 * FIRST_PAUSE_S

    play(tmp_path, act)


def test_a_load_that_hangs_holds_up_nobody_elses_revival(tmp_path: Path, clock: Clock) -> None:
    async def act(s: Scene) -> None:
        both = [await s.serve("1.0.0", name) for name in ("acme/a", "acme/b")]
        for one in both:
            await s.life_cycle.fail(one, "it broke")
        clock.now += FIRST_PAUSE_S
        s.selection.trials[A1] = asyncio.Event()
        await look(s)
        assert [one.state for one in both] == ["LOADING", "READY"]
        assert s.registry.status(both[0]).state == "LOADING"
        s.selection.trials[A1].set()
        await look(s)
        assert both[0].state == "READY"

    play(tmp_path, act)


def test_what_was_revoked_while_it_rested_is_left_alone_too(tmp_path: Path, clock: Clock) -> None:
    async def act(s: Scene) -> None:
        one = await s.serve("1.0.0")
        await s.life_cycle.rest(one, "it rests")
        s.bundles.problems[A1] = NotTrusted("revoked")
        await s.life_cycle.recheck()
        opened = len(s.bundles.opened)
        await look(s)
        assert len(s.bundles.opened) == opened

    play(tmp_path, act)


def test_what_never_was_loaded_is_not_revived(tmp_path: Path, clock: Clock) -> None:
    async def act(s: Scene) -> None:
        s.selection.problems[A1] = EngineFailedError("no memory")
        with pytest.raises(EngineFailedError):
            await s.serve("1.0.0")
        s.selection.problems.clear()
        opened = len(s.bundles.opened)
        clock.now += LAST_PAUSE_S
        await look(s)
        assert len(s.bundles.opened) == opened

    play(tmp_path, act)
