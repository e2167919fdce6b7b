"""Unloads models that nobody needs: after a while, or where memory runs short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from edge_agent.serve_config import ServeConfig
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.registry import Registry

_EVERY_S: Final = 1.0
_SMOOTHING: Final = 0.2  # of the newest sample: half of a step is seen after three seconds
_REST_S: Final = 5.0


class Sample(NamedTuple):
    """How memory does.

    Attributes:
        used_percent: Of what the machine or a control group has, whichever is fuller; None where
            it isn't known.
        stalled_percent: Share of the last ten seconds in which something waited for memory; None
            where the kernel doesn't say.
    """

    used_percent: float | None
    stalled_percent: float | None


class Gauge:
    """Whether memory is short: entered above the high thresholds, left below both low ones."""

    def __init__(self) -> None:
        self._used: float | None = None
        self._stalled: float | None = None
        self.is_short = False

    def update(self, sample: Sample, config: ServeConfig) -> bool:
        """Takes a sample, smooths it, and returns whether memory is short now."""
        self._used = _smoothed(self._used, sample.used_percent)
        self._stalled = _smoothed(self._stalled, sample.stalled_percent)
        used, stalled = self._used or 0.0, self._stalled or 0.0
        if used > config.memory_high_percent or stalled > config.stall_high_percent:
            self.is_short = True
        elif used < config.memory_low_percent and stalled < config.stall_low_percent:
            self.is_short = False
        return self.is_short


def _smoothed(before: float | None, now: float | None) -> float | None:
    if before is None or now is None:
        return now if now is not None else before
    return before + _SMOOTHING * (now - before)


class Unloading:
    """Puts models to rest; never one in use, or one that calls wait for.

    Args:
        registry: The models.
        life_cycle: What puts them to rest.
        sample: How memory does; called in a thread.
        config: What is configured now.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        sample: Callable[[], Sample],
        config: Callable[[], ServeConfig],
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._sample = sample
        self._config = config
        self.gauge = Gauge()

    async def run(self) -> None:
        """Looks once a second, for ever."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.look(monotonic())

    async def look(self, now: float) -> None:
        """Puts to rest what may: all that is idle, or where memory is short the longest unused."""
        config = self._config()
        is_short = self.gauge.update(await asyncio.to_thread(self._sample), config)
        if config.idle_unload_s:
            for entry in self._unused(now - config.idle_unload_s):
                await self._life_cycle.rest(entry, "nobody asked for a while; a call wakes it")
        if is_short:
            for entry in self._unused(now - _REST_S)[:1]:
                await self._life_cycle.rest(entry, "memory is short; a call wakes it")

    def _unused(self, since: float) -> list[Entry]:
        """Returns what nobody has asked since then, the longest unused first."""
        resting = [
            one
            for one in self._registry
            if one.state == "READY" and not one.is_used and one.last_used < since
        ]
        return sorted(resting, key=lambda one: one.last_used)
