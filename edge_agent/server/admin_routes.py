"""What only the admin socket has beside the model repository: the desired state, and reloading."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from edge_agent.server import json_bodies
from edge_agent.server.apps import EXCHANGE
from edge_agent.server.errors import MethodError
from edge_agent.server.replies import json_reply, send_reply
from edge_agent.serving import desired as desired_state

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.server.bodies import Bodies
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.replies import Receive, Scope, Send
    from edge_agent.serving.desired import Desired
    from edge_agent.serving.reconciler import Applied

DESIRED: Final = "/desired"
_ANY: Final = msgspec.json.Decoder(Any)


class Applies(Protocol):
    """What brings models to the desired state."""

    desired: Desired | None

    async def apply(self, desired: Desired, *, is_dry_run: bool = False) -> Applied:
        """Makes the set of models so."""

    async def forget(self) -> Applied:
        """Goes back to all that is installed."""


class DesiredState:
    """``GET`` tells the desired state, ``PUT`` makes it so, ``DELETE`` ends it.

    An ASGI app behind the admin socket's gate, whose matter errors are.

    Args:
        applies: What makes it so.
        bodies: Reads bodies.
        state_dir: Told to those who ask for it: whose store is served.
    """

    def __init__(self, applies: Applies, bodies: Bodies, state_dir: Path) -> None:
        self._applies = applies
        self._bodies = bodies
        self._state_dir = str(state_dir.resolve())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answers one request."""
        exchange: Exchange = scope[EXCHANGE]
        if scope["method"] == "PUT":
            document = await self._put(exchange)
        elif scope["method"] == "DELETE":
            document = _told(await self._applies.forget())
        elif scope["method"] in ("GET", "HEAD"):
            desired = msgspec.to_builtins(self._applies.desired)
            document = {"desired": desired, "state_dir": self._state_dir}
        else:
            raise MethodError(scope["method"], ("GET", "HEAD", "PUT", "DELETE"))
        await send_reply(json_reply(document), exchange, send)

    async def _put(self, exchange: Exchange) -> dict[str, Any]:
        value = json_bodies.read(_ANY, await self._bodies.read(exchange))
        wanted = desired_state.convert(value, "the body")
        is_dry_run = exchange.query_parameters().get("dry_run") == "1"
        return _told(await self._applies.apply(wanted, is_dry_run=is_dry_run))


class Reload:
    """``POST`` reads configuration and keyring again.

    Args:
        reload: Does it; returns the keys whose change needs a restart.
    """

    def __init__(self, reload: Callable[[], Awaitable[list[str]]]) -> None:
        self._reload = reload

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answers one request."""
        exchange: Exchange = scope[EXCHANGE]
        if scope["method"] != "POST":
            raise MethodError(scope["method"], ("POST",))
        document = {"needs_a_restart": await self._reload()}
        await send_reply(json_reply(document), exchange, send)


def _told(applied: Applied) -> dict[str, Any]:
    return {
        "steps": [
            msgspec.to_builtins(step) | {"error": applied.failures.get(number)}
            for number, step in enumerate(applied.steps)
        ]
    }
