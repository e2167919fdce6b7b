"""The configuration in force, and what a new one changes while the daemon runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from edge_agent.app import Agent
from edge_agent.serve_config import CacheConfig, ServeConfig

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from edge_agent.config import AgentConfig
    from edge_agent.loading import Notify
    from edge_agent.types import ModelRef

# Sockets and processes are made of these when the daemon starts.
_NEED_A_RESTART: Final = (
    "socket_group", "max_connections", "isolation", "workers",
    "worker_memory_mib", "canary_s", "classes", "tcp",
)  # fmt: skip
_AGENT_KEYS: Final = (
    "state_dir", "engine", "threads", "max_image_mib", "max_image_megapixels", "profile",
    "engine_order", "max_memory_mib", "cache",
)  # fmt: skip

# Asked for several times for each request.
_NO_SERVE: Final = ServeConfig()
_NO_CACHE: Final = CacheConfig()


class Settings:
    """The agent in force; `take` puts another in its place.

    Args:
        agent: The first.
    """

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    @property
    def config(self) -> AgentConfig:
        """The whole configuration."""
        return self.agent.config

    @property
    def serve(self) -> ServeConfig:
        """The table ``[serve]``."""
        return self.agent.config.serve or _NO_SERVE

    @property
    def cache(self) -> CacheConfig:
        """The table ``[cache]``."""
        return self.agent.config.cache or _NO_CACHE

    def open(self, reference: str) -> Bundle:
        """Implements `serving.life_cycle.Bundles`."""
        return self.agent.open(reference)

    def reopen(self, ref: ModelRef) -> Bundle:
        """Implements `serving.life_cycle.Bundles`."""
        return self.agent.reopen(ref)

    def take(self, config: AgentConfig, notify: Notify) -> list[str]:
        """Puts a configuration, and the keyring as it is now, in force.

        Keys that need a restart keep the value that the daemon was started with.

        Args:
            config: A valid one.
            notify: Told of what could not be kept.

        Returns:
            The keys whose change needs a restart.

        Raises:
            ConfigError: The keyring can't be read; the old ones stay in force.
            edge_signing.errors.KeyringError: It is malformed; the old ones stay in force.
        """
        before, old, new = self.config, self.serve, config.serve or ServeConfig()
        serve = structs.replace(new, **_those(old, _NEED_A_RESTART))
        agent = Agent(structs.replace(config, **_those(before, _AGENT_KEYS), serve=serve), notify)
        agent.keyring  # noqa: B018 - read now, so that a broken one changes nothing
        self.agent = agent
        waiting = [key for key in _AGENT_KEYS if getattr(before, key) != getattr(config, key)]
        changed = [key for key in _NEED_A_RESTART if getattr(old, key) != getattr(new, key)]
        return waiting + [f"serve.{key}" for key in changed]


def _those(table: AgentConfig | ServeConfig, keys: Sequence[str]) -> dict[str, Any]:
    return {key: getattr(table, key) for key in keys}
