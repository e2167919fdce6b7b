"""How much may wait, and who is refused."""

from __future__ import annotations

import asyncio

import pytest

from edge_agent.calls import Priority
from edge_agent.errors import OverloadedError
from edge_agent.scheduler.limits import SchedulerLimits, TenantLimits, limits_of
from edge_agent.serve_config import ServeConfig, TenantConfig

from .drive import Caller, Drive, give_up, limited, outcomes, settle

CRITICAL, HIGH, NORMAL, BULK = Priority


async def refusal(caller: Caller) -> OverloadedError:
    (error,) = await outcomes([caller])
    assert isinstance(error, OverloadedError)
    return error


def test_a_full_queue_refuses_and_tells_when_to_come_back() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=4))
        callers = [await drive.ask() for _ in range(4)]
        error = await refusal(await drive.ask())
        assert not error.is_callers_share
        assert error.retry_after_s == pytest.approx(4 * 0.010)
        callers += [await drive.ask(model="b"), await drive.ask(priority=BULK)]
        await give_up(drive, callers)

    asyncio.run(steps())


def test_the_time_to_come_back_is_measured() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=4))
        callers = [await drive.ask()]
        batch = await drive.take()
        assert batch is not None
        await drive.run(batch, 0.5)
        callers += [await drive.ask() for _ in range(4)]
        callers += [await drive.ask(model="b", priority=BULK)]
        assert (await refusal(await drive.ask())).retry_after_s == pytest.approx(4 * 0.5)
        await give_up(drive, callers)

    asyncio.run(steps())


def test_a_tenants_own_limit_holds_over_all_models_and_classes() -> None:
    async def steps() -> None:
        drive = Drive(limited(tenants={"small": TenantLimits(max_queued=2)}))
        callers = [
            await drive.ask(tenant="small"),
            await drive.ask(tenant="small", model="b", priority=BULK),
        ]
        assert (await refusal(await drive.ask(tenant="small"))).is_callers_share
        callers.append(await drive.ask(tenant="other"))
        assert drive.waiting() == 3
        await give_up(drive, callers)

    asyncio.run(steps())


def test_who_fills_the_queue_makes_room_for_who_has_less_than_a_fair_share() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=4))
        flood = [await drive.ask(number, tenant="flood") for number in range(4)]
        callers = [await drive.ask(10 + number, tenant="quiet") for number in range(2)]
        await settle()
        assert [one.done() for one in flood] == [False, False, True, True]
        for one in flood[2:]:
            assert (await refusal(one)).is_callers_share
        for tenant in ("quiet", "flood"):
            assert not (await refusal(await drive.ask(tenant=tenant))).is_callers_share
        assert await drive.order() == [0, 10, 1, 11]
        await give_up(drive, [*flood, *callers])

    asyncio.run(steps())


def test_who_holds_more_than_a_fair_share_of_a_full_queue_hears_so() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=4))
        callers = [await drive.ask(tenant="flood") for _ in range(3)]
        callers.append(await drive.ask(tenant="quiet"))
        assert (await refusal(await drive.ask(tenant="flood"))).is_callers_share
        await give_up(drive, callers)

    asyncio.run(steps())


def big(kib: int) -> int:
    """Columns of a query of so many KiB."""
    return kib * 512


def test_bytes_are_bounded_over_all_queues() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued_bytes=10 * 1024))
        callers = [await drive.ask(width=big(5)), await drive.ask(model="b", width=big(5))]
        assert drive.scheduler._admission.size == 10 * 1024
        assert not (await refusal(await drive.ask(model="b"))).is_callers_share
        await give_up(drive, callers)

    asyncio.run(steps())


def test_bytes_go_to_what_is_more_urgent() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued_bytes=10 * 1024))
        bulk = [await drive.ask(number, width=big(5), priority=BULK) for number in range(2)]
        urgent = await drive.ask(2, model="b", width=big(4), priority=CRITICAL)
        assert not (await refusal(bulk[1])).is_callers_share
        assert await drive.order() == [2, 0]
        await give_up(drive, [*bulk, urgent])

    asyncio.run(steps())


def test_bytes_are_shared_between_tenants() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued_bytes=10 * 1024))
        flood = [await drive.ask(tenant="flood", width=big(2)) for _ in range(5)]
        quiet = await drive.ask(1, tenant="quiet", model="b", width=big(3))
        assert [one.done() for one in flood] == [False, False, False, True, True]
        assert (await refusal(flood[4])).is_callers_share
        assert (await refusal(await drive.ask(tenant="flood", width=big(2)))).is_callers_share
        await give_up(drive, [*flood, quiet])

    asyncio.run(steps())


def test_nobody_is_put_out_for_a_job_that_finds_no_room_anyway() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued_bytes=10 * 1024))
        callers = [await drive.ask(width=big(2), priority=BULK)]
        callers.append(await drive.ask(width=big(8), priority=CRITICAL))
        await refusal(await drive.ask(width=big(4), priority=CRITICAL))
        assert drive.waiting() == 2
        await give_up(drive, callers)

    asyncio.run(steps())


def test_a_job_larger_than_all_the_room_waits_alone() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued_bytes=1024))
        callers = [await drive.ask(width=big(4))]
        await refusal(await drive.ask())
        assert drive.waiting() == 1
        await give_up(drive, callers)

    asyncio.run(steps())


def test_limits_of_a_configuration() -> None:
    config = ServeConfig(
        max_queued=3,
        max_queued_mib=2,
        age_s=1.5,
        max_batch=4,
        max_batch_wait_ms=2.5,
        max_run_ms=700,
        tenants={"uid:1000": TenantConfig(weight=3.0, max_queued=9)},
    )
    assert limits_of(config) == SchedulerLimits(
        max_queued=3,
        max_queued_bytes=2 * 1024**2,
        age_s=1.5,
        max_batch=4,
        max_batch_wait_s=0.0025,
        max_run_s=0.7,
        tenants={"uid:1000": TenantLimits(3.0, 9)},
    )


def test_new_limits_hold_for_what_comes_from_then_on() -> None:
    async def steps() -> None:
        drive = Drive(limited(max_queued=3))
        callers = [await drive.ask(number) for number in range(3)]
        drive.scheduler.reconfigure(limited(max_queued=2, max_run_s=0.5))
        assert not any(one.done() for one in callers)
        await refusal(await drive.ask())
        batch = await drive.take()
        assert batch is not None
        assert batch.timeout_s == 0.5
        await drive.run(batch)
        drive.scheduler.reconfigure(limited(max_queued=4))
        callers += [await drive.ask(number) for number in (3, 4)]
        assert await drive.order() == [1, 2, 3, 4]
        await give_up(drive, callers)

    asyncio.run(steps())
