"""Who goes next: class, age, model, tenant, first come."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from edge_agent.calls import Priority
from edge_agent.scheduler.limits import ModelQueueSettings, TenantLimits

from .drive import Caller, Drive, give_up, limited, settle, value

CRITICAL, HIGH, NORMAL, BULK = Priority


async def ask_all(drive: Drive, jobs: list[tuple[float, Priority, str, str]]) -> list[Caller]:
    """Submits jobs (seconds to wait before, class, model, tenant); their values count them."""
    callers = []
    for number, (pause_s, priority, model, tenant) in enumerate(jobs):
        drive.clock.pass_s(pause_s)
        caller = await drive.ask(number, model=model, tenant=tenant, priority=priority)
        callers.append(caller)
    return callers


@pytest.mark.parametrize(
    ("jobs", "order"),
    [
        pytest.param([(0, NORMAL, "a", "t")] * 4, [0, 1, 2, 3], id="first come, first served"),
        pytest.param(
            [
                (0, BULK, "a", "t"),
                (0, NORMAL, "b", "t"),
                (0, HIGH, "a", "t"),
                (0, CRITICAL, "b", "t"),
            ],
            [3, 2, 1, 0],
            id="class by class",
        ),
        pytest.param(
            [(0, BULK, "a", "t"), (1.9, NORMAL, "a", "t")], [1, 0], id="not old enough to move up"
        ),
        pytest.param(
            [(0, BULK, "a", "t"), (2.0, NORMAL, "a", "t")], [0, 1], id="one class up after age_s"
        ),
        pytest.param(
            [(0, BULK, "a", "t"), (6.0, CRITICAL, "a", "t")], [0, 1], id="up to the most urgent"
        ),
        pytest.param(
            [
                *[(0, BULK, "a", tenant) for tenant in "uvwx"],
                (6.0, CRITICAL, "b", "t"),
                (0, CRITICAL, "a", "t"),
            ],
            [0, 4, 1, 5, 2, 3],
            id="an old crowd and what is urgent by nature take turns",
        ),
        pytest.param(
            [*[(0, NORMAL, "a", "x")] * 4, *[(0, NORMAL, "a", "y")] * 2],
            [0, 4, 1, 5, 2, 3],
            id="tenants take turns",
        ),
        pytest.param(
            [*[(0, NORMAL, "a", "x")] * 4, *[(0, NORMAL, "a", "heavy")] * 4],
            [4, 0, 5, 6, 1, 7, 2, 3],
            id="tenants' weights",
        ),
    ],
)
def test_order(jobs: list[tuple[float, Priority, str, str]], order: list[int]) -> None:
    async def steps() -> list[int]:
        limits = limited(age_s=2.0, tenants={"heavy": TenantLimits(weight=2.0)})
        drive = Drive(limits)
        callers = await ask_all(drive, jobs)
        ran = await drive.order()
        await asyncio.gather(*callers)
        return ran

    assert asyncio.run(steps()) == order


def shares(run_s: dict[str, float], weights: dict[str, float]) -> Counter[str]:
    """Counts the runs of models that always have something waiting."""

    async def steps() -> Counter[str]:
        drive = Drive()
        for name in run_s:
            weight = weights.get(name, 1.0)
            drive.scheduler.update_model(name, ModelQueueSettings(10.0, weight=weight))
        callers = [await drive.ask(model=name) for name in run_s for _ in range(100)]
        runs: Counter[str] = Counter()
        for _ in range(100):
            batch = await drive.take(tuple(run_s))
            assert batch is not None
            runs[batch.model] += 1
            await drive.run(batch, run_s[batch.model])
        for one in callers:
            one.cancel()
        await settle()
        return runs

    return asyncio.run(steps())


def test_models_get_equal_time_not_equal_turns() -> None:
    runs = shares({"a": 0.01, "b": 0.03}, {})
    assert runs["a"] == pytest.approx(75, abs=2)
    assert runs["b"] == pytest.approx(25, abs=2)


def test_models_get_time_by_weight() -> None:
    runs = shares({"a": 0.01, "b": 0.01}, {"a": 4.0})
    assert runs["a"] == pytest.approx(80, abs=2)


def test_a_model_that_comes_late_saves_nothing_up() -> None:
    async def steps() -> Counter[str]:
        drive = Drive()
        callers = [await drive.ask(model="a") for _ in range(100)]
        await drive.order(run_s=0.01, most=50)
        callers += [await drive.ask(model="b") for _ in range(50)]
        runs: Counter[str] = Counter()
        for _ in range(20):
            batch = await drive.take()
            assert batch is not None
            runs[batch.model] += 1
            await drive.run(batch, 0.01)
        await drive.order()
        await asyncio.gather(*callers)
        return runs

    assert asyncio.run(steps())["b"] == pytest.approx(10, abs=1)


def test_newcomers_dont_keep_a_waiting_tenant_out() -> None:
    async def steps() -> list[int]:
        drive = Drive()
        callers = [await drive.ask(one, tenant="regular") for one in (0, 1)]
        ran: list[int] = []
        for newcomer in range(2, 12):
            callers.append(await drive.ask(newcomer, tenant=f"passer-by {newcomer}"))
            ran += await drive.order(most=1)
        ran += await drive.order()
        await asyncio.gather(*callers)
        return ran

    assert asyncio.run(steps()).index(1) <= 3


@pytest.mark.parametrize("priority", [NORMAL, BULK])
@pytest.mark.parametrize("starved_s", [0.0, 10.0])
def test_a_crowd_that_is_served_doesnt_grow_urgent_by_its_length(
    priority: Priority, starved_s: float
) -> None:
    run_s = {"a": 0.001, "b": 0.15}

    async def steps() -> list[float]:
        drive = Drive(limited(age_s=0.5))
        callers = [await drive.ask(model="b", tenant="crowd", priority=priority) for _ in range(40)]
        drive.clock.pass_s(starved_s)
        lone, asked, waits = await drive.ask(tenant="lone"), drive.clock.now, []
        for _ in range(200):
            batch = await drive.take()
            assert batch is not None
            if batch.model == "b":
                callers.append(await drive.ask(model="b", tenant="crowd", priority=priority))
                if lone.done():
                    lone, asked = await drive.ask(tenant="lone"), drive.clock.now
            await drive.run(batch, run_s[batch.model])
            if batch.model == "a":
                waits.append(drive.clock.now - asked)
        await give_up(drive, [*callers, lone])
        return waits

    waits = asyncio.run(steps())
    assert len(waits) > 90  # of 200 runs
    # What starved catches up with what it has missed: a run for each class that it grew by.
    assert waits[0] < (0.152 if not starved_s else 4 * 0.15 + 0.002)
    assert max(waits[1:]) < 0.152


def test_a_worker_gets_only_what_it_can_do() -> None:
    async def steps() -> None:
        drive = Drive()
        callers = [
            await drive.ask(0, model="a", priority=CRITICAL),
            await drive.ask(1, model="b", priority=BULK),
        ]
        assert await drive.take(models=("c",)) is None
        assert await drive.take(models=("b",), classes={CRITICAL}) is None
        batch = await drive.take(models=("b",))
        assert batch is not None
        assert value(batch.queries[0]) == 1
        await drive.run(batch)
        await drive.order()
        await asyncio.gather(*callers)

    asyncio.run(steps())


def test_a_job_goes_to_one_of_the_workers_that_wait_for_it() -> None:
    async def steps() -> None:
        drive = Drive()
        loaded: set[str] = set()
        workers = [
            asyncio.create_task(drive.scheduler.next_batch(loaded, set(Priority))) for _ in range(3)
        ]
        await settle()
        callers = [await drive.ask(number) for number in range(2)]
        assert not any(one.done() for one in workers)
        loaded.add("a")
        drive.scheduler.models_changed()
        await settle()
        batches = [one.result() for one in workers if one.done()]
        assert sorted(value(one.queries[0]) for one in batches) == [0, 1]
        for batch in batches:
            await drive.run(batch)
        await asyncio.gather(*callers)
        workers[2].cancel()
        await asyncio.wait(workers)

    asyncio.run(steps())


def test_a_worker_that_goes_away_when_it_is_woken_takes_no_job_with_it() -> None:
    async def steps() -> None:
        drive = Drive()
        first, second = (
            asyncio.create_task(drive.scheduler.next_batch({"a"}, set(Priority))) for _ in range(2)
        )
        await settle()
        caller = asyncio.create_task(drive.ask(7))
        while not drive.waiting():
            await asyncio.sleep(0)
        first.cancel()
        await settle()
        assert first.cancelled()
        await drive.run(second.result())
        assert (await (await caller)).answer.timings_ms["value"] == 7

    asyncio.run(steps())
