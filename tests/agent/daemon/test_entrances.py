"""The owner's door: room of its own, and what comes through it is read as everywhere."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_agent.daemon.building import Rooms
from edge_agent.daemon.entrances import TokensInForce, entrances
from edge_agent.daemon.settings import Settings
from edge_agent.serve_config import ServeConfig
from edge_agent.server.auth import Caller
from edge_agent.server.bodies import Bodies
from edge_agent.server.exchange import Exchange
from tests.agent.server.fakes import FakeService

SERVE = ServeConfig(max_connections=8)


class Reconciler:
    """Takes every desired state."""

    desired = None

    async def apply(self, desired: Any, *, is_dry_run: bool) -> Any:
        return SimpleNamespace(steps=(), failures={})


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path that is short enough for a socket's name."""
    made = Path(tempfile.mkdtemp(prefix="ea", dir="/tmp"))
    yield made
    shutil.rmtree(made)


async def ask(path: Path, target: str, body: bytes, method: str = "POST") -> int:
    reader, writer = await asyncio.open_unix_connection(str(path))
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        return int((await reader.read()).split()[1])
    finally:
        writer.close()


async def full() -> Bodies:
    """Returns what has no room for another body."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": bytes(1024), "more_body": False}

    made = Bodies(1024, 1024)
    one = Exchange({}, receive, {})
    one.caller = Caller("uid:1")
    await made.read(one)
    return made


@pytest.fixture
def run(folder: Path) -> Callable[[Any], None]:
    config = SimpleNamespace(
        runtime_dir=folder,
        state_dir=folder,
        data_socket=folder / "data.sock",
        admin_socket=folder / "admin.sock",
    )
    rooms = SimpleNamespace(
        models=FakeService(),
        reconciler=Reconciler(),
        refusals=SimpleNamespace(count=lambda *_: None),
        render=bytes,
    )

    async def reload() -> list[str]:
        return []

    async def serve(scenario: Any) -> None:
        settings = cast(Settings, SimpleNamespace(config=config, serve=SERVE))
        shared, own = await full(), Bodies(1024 * 1024, 1024 * 1024)
        server = entrances(settings, cast(Rooms, rooms), TokensInForce(SERVE), shared, own, reload)
        await server.start()
        try:
            await scenario(config.data_socket, config.admin_socket)
        finally:
            await server.stop(0.0)

    return lambda scenario: asyncio.run(serve(scenario))


def test_bodies_of_applications_dont_shut_the_owner_out(run: Any) -> None:
    async def scenario(data: Path, admin: Path) -> None:
        assert await ask(data, "/v2/repository/index", b"{}") == 503
        assert await ask(admin, "/v2/repository/index", b"{}") == 200
        wanted = b'{"schema": "edge-agent/desired/v1", "models": []}'
        assert await ask(admin, "/desired", wanted, "PUT") == 200

    run(scenario)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"[" * 900 + b"]" * 900, b"\xff", b""])
def test_a_desired_state_that_is_none_is_refused(run: Any, body: bytes) -> None:
    async def scenario(data: Path, admin: Path) -> None:
        assert data.exists()
        assert await ask(admin, "/desired", body, "PUT") == 400

    run(scenario)
