"""The desired state over the admin socket: ``GET`` tells it, ``PUT`` makes it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from edge_agent.errors import BadInputError
from edge_agent.server.apps import EXCHANGE
from edge_agent.server.errors import MethodError
from edge_agent.server.replies import json_reply, send_reply
from edge_agent.serving import desired as desired_state

if TYPE_CHECKING:
    from edge_agent.server.bodies import Bodies
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.replies import Receive, Scope, Send
    from edge_agent.serving.desired import Desired
    from edge_agent.serving.reconciler import Applied

PATH: Final = "/desired"


class Applies(Protocol):
    """What brings models to the desired state."""

    desired: Desired | None

    async def apply(self, desired: Desired, *, is_dry_run: bool = False) -> Applied:
        """Makes the set of models so."""


class DesiredState:
    """An ASGI app behind the admin socket's gate.

    Args:
        applies: What makes it so.
        bodies: Reads bodies.
    """

    def __init__(self, applies: Applies, bodies: Bodies) -> None:
        self._applies = applies
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Answers one request; errors are the gate's."""
        exchange: Exchange = scope[EXCHANGE]
        if scope["method"] == "PUT":
            document = await self._put(exchange)
        elif scope["method"] in ("GET", "HEAD"):
            document = {"desired": msgspec.to_builtins(self._applies.desired)}
        else:
            raise MethodError(scope["method"], ("GET", "HEAD", "PUT"))
        await send_reply(json_reply(document), exchange.request_id, send)

    async def _put(self, exchange: Exchange) -> dict[str, Any]:
        try:
            value = msgspec.json.decode(await self._bodies.read(exchange))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadInputError(f"the body isn't JSON: {error}") from error
        wanted = desired_state.convert(value, "the body")
        is_dry_run = exchange.query_parameters().get("dry_run") == "1"
        applied = await self._applies.apply(wanted, is_dry_run=is_dry_run)
        steps = [
            msgspec.to_builtins(step) | {"error": applied.failures.get(number)}
            for number, step in enumerate(applied.steps)
        ]
        return {"steps": steps, "is_dry_run": is_dry_run}
