"""On which workers a model runs: those that all share, or some of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from edge_agent.description import batch_axis
from edge_agent.scheduler.limits import ModelQueueSettings
from edge_agent.serve_config import ModelConfig
from edge_agent.serving.hosts import HostKind

if TYPE_CHECKING:
    from edge_agent.cache.key import Origin
    from edge_agent.description import ModelDescription
    from edge_agent.serve_config import ServeConfig
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.hosts import Host, Hosts
    from edge_agent.workers.work import Loaded

STOP_S: Final = 5.0


class Placement:
    """Places models on hosts, and takes them away.

    Args:
        hosts: The hosts.
        origins: What the cache calls each engine.
        config: What is configured now.
    """

    def __init__(
        self, hosts: Hosts, origins: Mapping[str, Origin], config: Callable[[], ServeConfig]
    ) -> None:
        self._hosts = hosts
        self._origins = origins
        self._config = config
        self._alone: set[str] = set()

    async def place(self, entry: Entry, engine: str) -> None:
        """Loads a model on its workers; then it can be ready.

        Raises:
            AgentError: It can't be loaded; it is nowhere then.
        """
        host = self._hosts.get(HostKind(engine, self._owner(entry.ref.name)))
        try:
            loaded = await host.load(entry.ref.digest, lambda done: self._queue(entry, done))
        except BaseException:
            await self._hosts.tidy(0.0)  # workers without a model have nothing to end
            raise
        entry.host, entry.engine, entry.loaded = host, engine, loaded
        entry.origin = self._origins[engine]

    async def free(self, entry: Entry) -> None:
        """Waits until nothing of a model waits or runs, and takes it off its workers."""
        host, entry.host = entry.host, None
        if host is not None:
            await host.unload(entry.ref.digest)
            await self._hosts.tidy(STOP_S)

    def cut_off(self, entry: Entry) -> Host | None:
        """Ends a model's queue at once: what waits there fails with a `ModelNotReadyError`.

        Returns:
            Where it ran, for `drop`; None where it ran nowhere.
        """
        host, entry.host = entry.host, None
        if host is not None:
            host.scheduler.remove_model(entry.ref.digest)
        return host

    async def drop(self, digest: str, host: Host) -> None:
        """Takes a model that was cut off off its workers."""
        await host.drop(digest)
        await self._hosts.tidy(STOP_S)

    def reconfigure(self, entry: Entry) -> None:
        """Gives the queue of a model what is configured for it now."""
        if entry.host is not None and entry.loaded is not None:
            queue = self._queue(entry, entry.loaded)
            entry.host.scheduler.update_model(entry.ref.digest, queue)

    def isolate(self, name: str) -> None:
        """Has a model placed on workers of its own from the next time on."""
        self._alone.add(name)

    def _owner(self, name: str) -> str | None:
        config = self._config()
        alone = config.isolation == "bundle" or self._model(name).isolated or name in self._alone
        return name if alone else None

    def _model(self, name: str) -> ModelConfig:
        return self._config().models.get(name) or ModelConfig()

    def _queue(self, entry: Entry, loaded: Loaded) -> ModelQueueSettings:
        model = self._model(entry.ref.name)
        return ModelQueueSettings(
            batches=loaded.batches,
            max_batch=model.max_batch,
            weight=model.weight,
            run_ms=loaded.run_ms,
            sizes_vary=_sizes_vary(entry.description),
        )


def _sizes_vary(description: ModelDescription) -> bool:
    """Whether an input has an axis of any length beside the batch axis."""
    rows = batch_axis(description)
    axes = {axis for spec in description.inputs for axis in spec.shape}
    return any(isinstance(axis, str) and axis != rows for axis in axes)
