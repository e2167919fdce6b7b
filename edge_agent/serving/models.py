"""The daemon's models: implements `Service`, what the server asks."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from edge_agent.errors import ModelNotFoundError

if TYPE_CHECKING:
    from edge_agent.calls import Call, Reply
    from edge_agent.serving.answering import Answering
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.reconciler import Reconciler
    from edge_agent.serving.registry import Registry
    from edge_agent.serving.service import ModelStatistics, ModelStatus


class Models:
    """Implements `Service`.

    Args:
        registry: Who answers.
        life_cycle: What loads and unloads.
        answering: The way of a call.
        reconciler: What should be served.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        answering: Answering,
        reconciler: Reconciler,
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._answering = answering
        self._reconciler = reconciler

    def is_ready(self) -> bool:
        """See `Service.is_ready`."""
        # What never was loaded didn't break: whoever wanted it loaded knows that it failed.
        loaded = [one for one in self._registry if one.loaded is not None]
        live = [one for one in loaded if self._registry.live(one.ref.name) is one]
        return self._reconciler.is_reached and all(one.is_at_hand for one in live)

    def models(self) -> Sequence[ModelStatus]:
        """See `Service.models`."""
        return self._registry.models()

    def model(self, name: str, version: str | None) -> ModelStatus:
        """See `Service.model`."""
        return self._registry.model(name, version)

    def statistics(self, name: str | None, version: str | None) -> Sequence[ModelStatistics]:
        """See `Service.statistics`."""
        if name is None:
            return [entry.statistics for entry in self._registry]
        if version is not None:
            return [self._registry.find(name, version).statistics]
        return [entry.statistics for entry in self._all(name)]

    def infer(self, call: Call) -> Coroutine[Any, Any, Reply]:
        """See `Service.infer`."""
        return self._answering.infer(call)

    async def load(self, name: str, version: str | None) -> ModelStatus:
        """See `Service.load`."""
        entry = await self._life_cycle.load(name, version)
        self._reconciler.touched(name)
        return self._registry.status(entry)

    async def unload(self, name: str, version: str | None) -> None:
        """See `Service.unload`."""
        for one in [self._registry.find(name, version)] if version else self._all(name):
            with nullcontext() if version else suppress(ModelNotFoundError):  # it went meanwhile
                await self._life_cycle.unload(one)
        self._reconciler.touched(self._registry.name_of(name, version)[0])

    def _all(self, name: str) -> list[Entry]:
        """Returns all versions of a model, whether one is live or not."""
        found = list(self._registry.versions(self._registry.name_of(name, None)[0]).values())
        return found or [self._registry.find(name, None)]
