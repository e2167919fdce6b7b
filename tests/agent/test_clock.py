"""Time never runs behind the agent's own release."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from edge_agent import __released__, clock


@pytest.mark.parametrize(
    "system",
    [datetime(1970, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), clock.FLOOR - timedelta(1)],
)
def test_a_clock_without_battery_is_not_believed(system: datetime) -> None:
    assert clock.now(system) == clock.FLOOR


def test_a_later_clock_is_believed_in_any_time_zone() -> None:
    later = clock.FLOOR + timedelta(seconds=1)
    assert clock.now(later) == later
    assert clock.now(later.astimezone(timezone(timedelta(hours=-11)))) == later


def test_the_floor_is_the_release() -> None:
    assert datetime.fromisoformat(__released__).replace(tzinfo=UTC) == clock.FLOOR
    assert datetime(2100, 1, 1, tzinfo=UTC) > clock.FLOOR


def test_the_system_clock_is_read_with_its_time_zone() -> None:
    before = datetime.now(UTC)
    now = clock.now()
    assert now.tzinfo is not None
    assert max(before, clock.FLOOR) <= now <= max(datetime.now(UTC), clock.FLOOR)
