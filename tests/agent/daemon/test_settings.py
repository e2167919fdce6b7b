"""A new configuration: what counts at once, and what waits for a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from edge_agent.app import Agent
from edge_agent.config import AgentConfig
from edge_agent.daemon.settings import Settings
from edge_agent.errors import ConfigError
from edge_agent.serve_config import CacheConfig, ClassConfig, ModelConfig, ServeConfig, TcpConfig
from edge_agent.serve_config import TenantConfig as Tenant
from edge_signing.errors import KeyringError

TCP = TcpConfig(8000, tokens_file="/etc/tokens")


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    serve = ServeConfig(tcp=TCP)
    return AgentConfig(tmp_path / "config", tmp_path / "state", serve=serve, cache=CacheConfig())


def with_serve(config: AgentConfig, **changed: Any) -> AgentConfig:
    assert config.serve
    return structs.replace(config, serve=structs.replace(config.serve, **changed))


def quiet(text: str) -> None:
    pytest.fail(text)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log_level", "debug"),
        ("drain_s", 1.0),
        ("default_deadline_ms", 5),
        ("max_queued", 1),
        ("max_request_mib", 1),
        ("max_queued_mib", 1),
        ("age_s", 1.0),
        ("max_run_ms", 20),
        ("idle_unload_s", 5.0),
        ("memory_high_percent", 95),
        ("stall_low_percent", 1),
        ("tenants", {"uid:1": Tenant(weight=2.0)}),
        ("models", {"acme/a": ModelConfig(weight=2.0)}),
    ],
)
def test_counts_at_once(config: AgentConfig, key: str, value: Any) -> None:
    settings = Settings(Agent(config, quiet))
    new = with_serve(config, **{key: value})
    assert settings.take(new, quiet) == []
    assert getattr(settings.serve, key) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("socket_group", "users"),
        ("max_connections", 1),
        ("isolation", "bundle"),
        ("workers", 2),
        ("worker_memory_mib", 100),
        ("canary_s", 1.0),
        ("classes", {"bulk": ClassConfig(nice=5)}),
        ("tcp", None),
        ("tcp", structs.replace(TCP, port=9000)),
        ("tcp", structs.replace(TCP, hosts=("other",))),
        ("tcp", structs.replace(TCP, certificate="/etc/tls.pem")),
        ("tcp", structs.replace(TCP, tokens_file="/etc/others")),
    ],
)
def test_waits_for_a_restart_each_time_that_it_is_asked(
    config: AgentConfig, key: str, value: Any
) -> None:
    settings = Settings(Agent(config, quiet))
    new = with_serve(config, **{key: value})
    for _ in range(2):
        assert settings.take(new, quiet) == [f"serve.{key}"]
        assert settings.serve == config.serve
    assert settings.take(config, quiet) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state_dir", Path("/elsewhere")),
        ("engine", "onnx"),
        ("threads", 7),
        ("max_image_mib", 1),
        ("profile", "other"),
        ("max_memory_mib", 100),
        ("cache", CacheConfig(mib=0)),
    ],
)
def test_of_the_agent_waits_too(config: AgentConfig, key: str, value: Any) -> None:
    settings = Settings(Agent(config, quiet))
    assert settings.take(structs.replace(config, **{key: value}), quiet) == [key]
    assert settings.config == config


def test_a_keyring_that_cannot_be_read_changes_nothing(config: AgentConfig) -> None:
    settings = Settings(Agent(config, quiet))
    config.config_dir.mkdir()
    config.keyring_file.write_text("{")
    new = with_serve(config, drain_s=1.0)
    with pytest.raises((ConfigError, KeyringError)):
        settings.take(new, quiet)
    assert settings.serve.drain_s == ServeConfig().drain_s


def test_without_tables_the_defaults_count(tmp_path: Path) -> None:
    settings = Settings(Agent(AgentConfig(tmp_path, tmp_path), quiet))
    assert settings.serve == ServeConfig()
    assert settings.cache == CacheConfig()
    assert settings.take(AgentConfig(tmp_path, tmp_path), quiet) == []
