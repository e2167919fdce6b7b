"""Tries to load versions again that are out of service, each after a pause of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.registry import Registry

_EVERY_S: Final = 1.0


class Revival:
    """Looks for versions that broke and have been left alone for long enough.

    Args:
        registry: The versions.
        life_cycle: What loads them.
    """

    def __init__(self, registry: Registry, life_cycle: LifeCycle) -> None:
        self._registry = registry
        self._life_cycle = life_cycle

    async def run(self) -> None:
        """Does so for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            for entry in list(self._registry):
                # What never was loaded is no model that broke: its load is the reconciler's.
                if entry.loaded is not None:
                    self._life_cycle.revive(entry)
