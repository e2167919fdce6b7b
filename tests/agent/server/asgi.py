"""Asks an app without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from edge_agent.serve_config import ServeConfig
from edge_agent.server.apps import admin_app, bodies, data_app
from edge_agent.server.auth import PEER
from edge_agent.server.replies import App
from edge_agent.serving.service import Service
from tests.agent.server.fakes import local


class Got(NamedTuple):
    """A reply."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def metrics() -> bytes:
    return b"up 1\n"


def data(service: Service, config: ServeConfig | None = None) -> App:
    return data_app(service, bodies(config or ServeConfig()), local(), metrics)


def admin(service: Service) -> App:
    return admin_app(service, bodies(ServeConfig()), local(), metrics)


async def ask(
    app: App,
    method: str,
    target: str,
    body: bytes | Sequence[bytes] = b"",
    headers: dict[str, str] | None = None,
    peer: str | None = "uid:1000",
) -> Got:
    """Sends one request; a sequence of bytes comes in as many pieces."""
    pieces = [body] if isinstance(body, bytes) else list(body)
    path, _, query = target.partition("?")
    sent: list[Any] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not pieces:
            await never.wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        sent.append(message)

    given = {name.lower(): value for name, value in (headers or {}).items()}
    if isinstance(body, bytes) and body:
        given.setdefault("content-length", str(len(body)))
    scope = {
        "type": "http",
        "method": method,
        "raw_path": path.encode("latin-1"),
        "path": path,
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in given.items()],
        "state": {PEER: peer},
        "server": None,
    }
    await app(scope, receive, send)
    start, *rest = sent
    names = {k.decode(): v.decode() for k, v in start["headers"]}
    return Got(start["status"], names, b"".join(one["body"] for one in rest))


def asked(*arguments: Any, **more: Any) -> Got:
    """`ask` in an event loop of its own."""
    return asyncio.run(ask(*arguments, **more))
