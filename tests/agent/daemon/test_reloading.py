"""A reload: what it puts in force, what is forgotten, and what the service manager hears."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from edge_agent.app import Agent
from edge_agent.cache.faults import CacheUnusable
from edge_agent.config import AgentConfig
from edge_agent.daemon.building import Rooms
from edge_agent.daemon.daemon import Daemon
from edge_agent.daemon.entrances import TokensInForce
from edge_agent.daemon.reloading import Reloading
from edge_agent.daemon.sd_notify import Notifier
from edge_agent.daemon.settings import Settings
from edge_agent.errors import ConfigError
from edge_agent.serve_config import ClassConfig, ServeConfig, TcpConfig
from edge_agent.server.apps import bodies
from edge_agent.server.errors import NotAuthenticatedError
from edge_agent.telemetry import logs

OLD, NEW, OTHER = b"o" * 16, b"n" * 16, b"x" * 16


class FakeNotifier(Notifier):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__({})
        self.said: list[str] = []

    def _send(self, message: str) -> None:
        self.said.append(message.partition("\n")[0])


class FakeRooms:
    """Rooms that only say what was asked of them."""

    def __init__(self) -> None:
        self.is_revoked = False
        self.problem: Exception | None = None
        self.forgot = 0
        self.renewed: list[str] = []
        self.hosts = [SimpleNamespace(renew=self.renewed.append, reconfigure=lambda limits: None)]
        self.registry: list[object] = []
        self.life_cycle = SimpleNamespace(recheck=self.recheck)
        self.answering = SimpleNamespace(forget=self.forget)

    def served(self) -> str:
        return "acme/a"

    async def recheck(self) -> bool:
        return self.is_revoked

    async def forget(self) -> None:
        self.forgot += 1
        if self.problem:
            raise self.problem


class Scene:
    """A reload that reads `config`, or raises it."""

    def __init__(self, folder: Path, serve: ServeConfig | None = None) -> None:
        self.config: AgentConfig | Exception = AgentConfig(folder, folder, serve=serve)
        self.rooms, self.notifier = FakeRooms(), FakeNotifier()
        self.settings = Settings(Agent(self.config, lambda text: None))
        self.in_force = TokensInForce(self.settings.serve)
        self.reloading = Reloading(
            self.settings,
            self.load,
            cast("Rooms", self.rooms),
            self.in_force,
            (bodies(ServeConfig()),),
            self.notifier,
            lambda text: None,
        )

    def load(self) -> AgentConfig:
        if isinstance(self.config, Exception):
            raise self.config
        return self.config


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(logs, "start", lambda level: None)
    return Scene(tmp_path)


def tokens(path: Path, token: bytes) -> TcpConfig:
    """Writes a file of tokens, and returns a table that names it."""
    path.write_text(f"camera {token.decode()}\n")
    path.chmod(0o600)
    return TcpConfig(0, tokens_file=str(path))


@pytest.fixture
def networked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene with the tokens of a file."""
    monkeypatch.setattr(logs, "start", lambda level: None)
    return Scene(tmp_path, ServeConfig(tcp=tokens(tmp_path / "tokens", OLD)))


@pytest.mark.parametrize("is_revoked", [False, True])
def test_what_was_revoked_leaves_no_answers_and_no_workers(scene: Scene, is_revoked: bool) -> None:
    scene.rooms.is_revoked = is_revoked
    assert asyncio.run(scene.reloading.reload()) == []
    assert scene.rooms.forgot == int(is_revoked)
    assert len(scene.rooms.renewed) == int(is_revoked)


def test_a_disk_that_keeps_its_answers_refuses_no_reload(scene: Scene) -> None:
    scene.rooms.is_revoked, scene.rooms.problem = True, CacheUnusable("read-only")
    assert asyncio.run(scene.reloading.reload()) == []


def test_the_status_of_a_refused_reload_ends_with_the_next(scene: Scene) -> None:
    good, scene.config = scene.config, ConfigError("is wrong")
    scene.notifier.ready()
    with pytest.raises(ConfigError):
        asyncio.run(scene.reloading.reload())
    told = "STATUS=the new configuration can't be used: is wrong"
    assert scene.notifier.said == ["READY=1", "RELOADING=1", told, "READY=1"]
    scene.config = good
    asyncio.run(scene.reloading.reload())
    assert scene.notifier.said[4:] == ["RELOADING=1", "STATUS=serving acme/a", "READY=1"]


def test_what_is_in_the_file_of_tokens_counts_at_once(networked: Scene, tmp_path: Path) -> None:
    tokens(tmp_path / "tokens", NEW)
    assert asyncio.run(networked.reloading.reload()) == []
    assert networked.in_force().name(NEW) == "camera"
    with pytest.raises(NotAuthenticatedError):
        networked.in_force().name(OLD)


@pytest.mark.parametrize("is_moved", [False, True])
def test_tokens_stay_until_a_restart(networked: Scene, tmp_path: Path, is_moved: bool) -> None:
    tcp = tokens(tmp_path / "others", OTHER) if is_moved else None
    networked.config = AgentConfig(tmp_path, tmp_path, serve=ServeConfig(tcp=tcp))
    for _ in range(2):
        assert asyncio.run(networked.reloading.reload()) == ["serve.tcp"]
        assert networked.in_force().name(OLD) == "camera"
        with pytest.raises(NotAuthenticatedError):
            networked.in_force().name(OTHER)


@pytest.mark.parametrize(
    "wrong",
    [
        ServeConfig(drain_s=1, tcp=TcpConfig(18443)),
        ServeConfig(drain_s=1, tcp=TcpConfig(0, tokens_file="/nowhere/tokens")),
        ServeConfig(drain_s=1, socket_group="no-such-group-here"),
        ServeConfig(drain_s=1, classes={"bulk": ClassConfig(cpus=(4095,))}),
    ],
)
def test_what_a_start_refuses_changes_nothing(
    networked: Scene, tmp_path: Path, wrong: ServeConfig
) -> None:
    before = networked.settings.config
    tokens(tmp_path / "tokens", NEW)
    networked.config = structs.replace(before, serve=wrong)
    with pytest.raises(ConfigError):
        asyncio.run(networked.reloading.reload())
    assert networked.settings.config == before
    assert networked.in_force().name(OLD) == "camera"


def test_a_daemon_that_only_starts_is_not_ready_by_a_reload(scene: Scene) -> None:
    asyncio.run(scene.reloading.reload())
    assert "READY=1" not in scene.notifier.said


def test_a_start_that_is_broken_off_has_ended(scene: Scene) -> None:
    ended: list[str] = []

    async def begin() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("begin")

    async def main() -> None:
        rooms = cast("Rooms", SimpleNamespace(reconciler=SimpleNamespace(begin=begin)))
        daemon = Daemon(scene.settings, scene.load, scene.notifier, lambda text: None)
        beginning = asyncio.create_task(daemon._begin(rooms))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait({beginning})
        assert ended == ["begin"]

    asyncio.run(main())
    assert scene.notifier.said == ["EXTEND_TIMEOUT_USEC=60000000"]
