"""Only calls that ask exactly the same are joined."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from msgspec import structs

from edge_agent.cache.admission import PATIENCE
from edge_agent.cache.flights import Flights
from edge_agent.cache.key import CacheSubject
from edge_agent.cache.tickets import INLINE_BYTES, Hasher, Ticket
from edge_agent.calls import Query

from .conftest import LARGE, SUBJECT, query


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def ticket(asked: Query, subject: CacheSubject = SUBJECT) -> Ticket:
    return Ticket(subject, asked)


def pair(size: int) -> tuple[bytes, bytes]:
    """Two inputs of one fingerprint: they differ where no sample is taken."""
    one = bytes(size)
    for place in range(size // 2, size):
        other = one[:place] + b"\1" + one[place + 1 :]
        if ticket(query(one)).fingerprint == ticket(query(other)).fingerprint:
            return one, other
    raise AssertionError("every byte is sampled")


@pytest.mark.parametrize("size", [16, LARGE, INLINE_BYTES + 1])
def test_equal_calls_share_a_flight_and_the_last_one_ends_it(size: int) -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        tickets = [ticket(query(bytes(size))) for _ in range(5)]
        first, *others = [await flights.enter(one) for one in tickets]
        assert all(one is first for one in others)
        for _ in range(4):
            flights.leave(first)
        assert await flights.enter(ticket(query(bytes(size)))) is first
        flights.leave(first)
        flights.leave(first)
        assert len(flights) == 0
        assert await flights.enter(ticket(query(bytes(size)))) is not first

    run(work())


@pytest.mark.parametrize("size", [LARGE, INLINE_BYTES + 1])
def test_equal_samples_alone_join_nothing(size: int) -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        one, other = pair(size)
        first = await flights.enter(ticket(query(one)))
        second = await flights.enter(ticket(query(other)))
        assert first is not second
        assert await flights.enter(ticket(query(one))) is first
        assert await flights.enter(ticket(query(other))) is second
        assert len(flights) == 2

    run(work())


def test_a_lone_call_is_not_hashed() -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        lone = ticket(query(bytes(LARGE)))
        await flights.enter(lone)
        await flights.enter(ticket(query(b"\1" * LARGE)))
        assert lone.key is None
        await flights.enter(ticket(query(bytes(LARGE))))
        assert lone.key is not None

    run(work())


def test_other_tenants_and_models_fly_alone() -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        asked = query(bytes(LARGE))
        others = [
            SUBJECT,
            structs.replace(SUBJECT, tenant="uid:8"),
            structs.replace(SUBJECT, bundle="sha256:" + "f" * 64),
        ]
        assert len({await flights.enter(ticket(asked, one)) for one in others}) == 3

    run(work())


def test_many_at_once_hash_the_first_one_once() -> None:
    async def work() -> None:
        hasher = Hasher()
        flights = Flights(hasher)
        computed: list[Ticket] = []

        class Counting(Ticket):
            def compute(self) -> bytes:
                computed.append(self)
                return super().compute()

        data = bytes(INLINE_BYTES + 1)
        tickets = [Counting(SUBJECT, query(data)) for _ in range(9)]
        found = await asyncio.gather(*(flights.enter(one) for one in tickets))
        assert len(set(found)) == 1
        assert len(computed) == len(set(computed)) == 9
        hasher.close()

    run(work())


def test_a_flight_that_lands_while_it_is_hashed_is_not_joined() -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        asked = query(bytes(INLINE_BYTES + 1))
        first = await flights.enter(ticket(asked))
        entering = asyncio.ensure_future(flights.enter(ticket(asked)))
        await asyncio.sleep(0)
        flights.leave(first)
        assert await entering is not first
        assert len(flights) == 1

    run(work())


def test_a_buffer_that_was_given_back_joins_nothing() -> None:
    async def work() -> None:
        flights = Flights(Hasher())
        data = bytearray(INLINE_BYTES + 1)
        view = memoryview(data)
        first = await flights.enter(ticket(query(view)))
        view.release()
        second = await flights.enter(ticket(query(bytes(INLINE_BYTES + 1))))
        assert first is not second

    run(work())


def test_collisions_that_never_join_are_soon_let_be() -> None:
    """Sensor data that changes where no sample is taken."""

    async def work() -> None:
        flights = Flights(Hasher())
        one, other = pair(LARGE)
        await flights.enter(ticket(query(one)))
        hashed = 0
        for _ in range(PATIENCE + 160):
            late = ticket(query(other))
            flights.leave(await flights.enter(late))
            hashed += late.key is not None
        assert hashed == PATIENCE + 10

    run(work())
