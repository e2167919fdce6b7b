"""Who is put to rest, and when."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from edge_agent.serve_config import ServeConfig
from edge_agent.serving.pressure import Gauge, Sample, Unloading

from .scene import Scene, play, until, who

CONFIG = ServeConfig()
CALM, FULL, STALLED = Sample(50.0, 0.0), Sample(99.0, 0.0), Sample(50.0, 90.0)
BETWEEN, NOTHING = Sample(80.0, 10.0), Sample(None, None)


def steps(gauge: Gauge, sample: Sample, until_short: bool) -> int:
    """How many samples it takes."""
    for number in range(1, 50):
        if gauge.update(sample, CONFIG) is until_short:
            return number
    pytest.fail(f"never {until_short} at {sample}")


@pytest.mark.parametrize("bad", [FULL, STALLED])
def test_one_bad_second_is_not_a_shortage_but_lasting_ones_are(bad: Sample) -> None:
    gauge = Gauge()
    assert not gauge.update(CALM, CONFIG)
    assert steps(gauge, bad, True) > 1
    assert steps(gauge, CALM, False) > 1


def test_between_both_thresholds_it_stays_as_it_is() -> None:
    gauge = Gauge()
    assert not any(gauge.update(BETWEEN, CONFIG) for _ in range(20))
    steps(gauge, FULL, True)
    assert all(gauge.update(BETWEEN, CONFIG) for _ in range(20))


def test_what_is_not_known_is_no_shortage() -> None:
    gauge = Gauge()
    assert not any(gauge.update(NOTHING, CONFIG) for _ in range(3))
    assert not gauge.update(CALM, CONFIG)
    assert not gauge.update(NOTHING, CONFIG)


def unloading(s: Scene, sample: Sample) -> Unloading:
    return Unloading(s.registry, s.life_cycle, lambda: sample, lambda: s.config)


async def three(s: Scene) -> list[str]:
    """Three models of which the first was used last."""
    names = ["acme/c", "acme/b", "acme/a"]
    for age, name in enumerate(names):
        (await s.serve(name=name)).last_used = monotonic() - 100 - age
    return names


def ready(s: Scene) -> list[str]:
    return [one.ref.name for one in s.registry if one.state == "READY"]


def test_rests_what_was_unused_for_longest_one_at_a_time(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await three(s)
        one = unloading(s, FULL)
        one.gauge.is_short = True
        await one.look(monotonic())
        assert ready(s) == ["acme/b", "acme/c"]
        await one.look(monotonic())
        assert ready(s) == ["acme/c"]
        assert who(await s.ask(name="acme/a")) == "sha256:acme/a@1.0.0"

    play(tmp_path, act)


def test_never_rests_what_is_used_or_waited_for_or_was_just_now(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        await three(s)
        s.registry.find("acme/a", None).last_used = monotonic()
        pool = await s.running()
        began = s.asking(name="acme/b")
        await until(lambda: pool.batches)
        waits = s.asking(name="acme/c")
        await until(lambda: s.waiting())
        (await s.serve(name="acme/d")).last_used = monotonic() - 50
        one = unloading(s, FULL)
        one.gauge.is_short = True
        for _ in range(3):
            await one.look(monotonic())
        assert ready(s) == ["acme/a", "acme/b", "acme/c"]
        pool.running.set()
        await asyncio.gather(began, waits)

    play(tmp_path, act)


@pytest.mark.parametrize(("idle_s", "rest"), [(0.0, []), (101.5, ["acme/a"]), (50.0, None)])
def test_rests_what_nobody_asked_for_long(
    tmp_path: Path, idle_s: float, rest: list[str] | None
) -> None:
    async def act(s: Scene) -> None:
        names = await three(s)
        s.config = ServeConfig(idle_unload_s=idle_s)
        await unloading(s, CALM).look(monotonic())
        expected = names if rest is None else rest
        assert sorted(set(names) - set(ready(s))) == sorted(expected)

    play(tmp_path, act)


def test_a_model_is_used_when_it_is_loaded(tmp_path: Path) -> None:
    async def act(s: Scene) -> None:
        entry = await s.serve()
        entry.last_used = 0.0
        await s.life_cycle.rest(entry, "it rests")
        await s.life_cycle.load("acme/a", None)
        s.config = ServeConfig(idle_unload_s=60)
        await unloading(s, CALM).look(monotonic())
        assert ready(s) == ["acme/a"]

    play(tmp_path, act)
