"""What a configuration must have for the daemon to start here; a reload asks for the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from edge_agent.errors import ConfigError
from edge_agent.server import sockets, tokens

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.serve_config import ServeConfig, TcpConfig


def require_startable(agent: Agent, own: TcpConfig | None) -> None:
    """Refuses a configuration with which the daemon can't start on this machine.

    Args:
        agent: Made of it.
        own: Where this daemon listens, or will in a moment: its own port is no obstacle.

    Raises:
        ConfigError: It can't be used here.
    """
    agent.profile  # noqa: B018 - read now, so that a broken one is refused
    serve = agent.config.serve
    if serve is None:
        return
    _require_cpus(serve)
    if serve.socket_group is not None:
        sockets.group_id(serve.socket_group)
    if serve.tcp is not None:
        _require_tcp(serve.tcp, own)


def _require_cpus(serve: ServeConfig) -> None:
    there = os.sysconf("SC_NPROCESSORS_CONF")
    for name, one in serve.classes.items():
        missing = sorted({cpu for cpu in one.cpus if cpu >= there})
        if missing:
            raise ConfigError(
                f"serve.classes.{name}.cpus: this machine has no CPU {missing[0]}",
                hint=f"its CPUs are 0 to {there - 1}",
            )


def _require_tcp(tcp: TcpConfig, own: TcpConfig | None) -> None:
    sockets.tls(tcp)
    if tcp.tokens_file is not None:
        tokens.read(Path(tcp.tokens_file))
    is_own_port = own is not None and tcp.port == own.port
    # Any free port shows whether the address is one of this machine.
    sockets.tcp_socket(structs.replace(tcp, port=0) if is_own_port else tcp).close()
