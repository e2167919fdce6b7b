"""What the daemon can't start with is refused, by a start and by a reload alike."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from edge_agent.app import Agent
from edge_agent.config import AgentConfig
from edge_agent.daemon.start_checks import require_startable
from edge_agent.errors import ConfigError
from edge_agent.serve_config import ClassConfig, ServeConfig, TcpConfig

TOKEN = "camera 0123456789abcdef\n"


@pytest.fixture
def tcp(tmp_path: Path) -> TcpConfig:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    return TcpConfig(0, tokens_file=str(tokens))


def agent(folder: Path, profile: str = "auto", **serve: Any) -> Agent:
    config = AgentConfig(folder, folder, profile=profile, serve=ServeConfig(**serve))
    return Agent(config, pytest.fail)


def test_what_can_start(tmp_path: Path, tcp: TcpConfig) -> None:
    require_startable(Agent(AgentConfig(tmp_path, tmp_path), pytest.fail), None)
    last = os.sysconf("SC_NPROCESSORS_CONF") - 1
    classes = {"critical": ClassConfig(cpus=(0, last))}
    require_startable(agent(tmp_path, tcp=tcp, classes=classes), None)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokens_file": None}, "nobody could get in through serve.tcp"),
        ({"tokens_file": "/nowhere/tokens"}, "can't be read"),
        ({"address": "0.0.0.0"}, "would take tokens in the clear"),
        ({"certificate": "/etc/tls.pem"}, "needs certificate and key"),
        ({"certificate": "/no.pem", "key": "/no.key"}, "can't be read"),
    ],
)
def test_tcp_that_cannot_start(
    tmp_path: Path, tcp: TcpConfig, changed: dict[str, str | None], words: str
) -> None:
    wrong = structs.replace(tcp, **changed)
    with pytest.raises(ConfigError, match=words):
        require_startable(agent(tmp_path, tcp=wrong), tcp)


def test_an_address_that_is_none(tmp_path: Path, tcp: TcpConfig) -> None:
    # 127.1.2.300 can't be anybody's, and counts as no loopback address.
    wrong = structs.replace(tcp, address="127.1.2.300")
    with pytest.raises(ConfigError):
        require_startable(agent(tmp_path, tcp=wrong), tcp)


def test_a_port_that_another_program_has(tmp_path: Path, tcp: TcpConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = structs.replace(tcp, port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="can't be listened on"):
            require_startable(agent(tmp_path, tcp=wanted), tcp)
        require_startable(agent(tmp_path, tcp=wanted), wanted)


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        ({"socket_group": "no-such-group-here"}, "there is no group 'no-such-group-here'"),
        ({"classes": {"bulk": ClassConfig(cpus=(0, 4095))}}, "this machine has no CPU 4095"),
    ],
)
def test_settings_that_have_no_effect_here(
    tmp_path: Path, serve: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        require_startable(agent(tmp_path, **serve), None)


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        require_startable(agent(tmp_path, profile="nowhere"), None)
