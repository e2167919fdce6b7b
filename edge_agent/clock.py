"""The time, on boards without a clock battery.

A gateway may boot in 1970. Time is never taken to be before the agent's own release, so that an
expired key can't come back by pulling the plug.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from edge_agent import __released__

FLOOR: Final = datetime.fromisoformat(__released__).replace(tzinfo=UTC)


def now(system: datetime | None = None) -> datetime:
    """Returns the later of the system clock and the floor, in UTC.

    Args:
        system: The system clock's reading; None reads it.
    """
    return max(system or datetime.now(UTC), FLOOR)
