"""Replies, until they are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON: Final = b"application/json"
BINARY: Final = b"application/octet-stream"
_JSON = msgspec.json.Encoder()


class Reply(Struct):
    """What goes back.

    Attributes:
        body: All of it.
        status: Status code.
        content_type: Media type of the body.
        headers: Others, names in lower case.
    """

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = []


def json_reply(value: Any, status: int = 200) -> Reply:
    """Returns a JSON document as a reply."""
    return Reply(_JSON.encode(value), status)


async def send_reply(reply: Reply, exchange: Exchange, send: Send) -> None:
    """Sends a reply to a request."""
    headers = [
        (b"content-type", reply.content_type),
        (b"content-length", b"%d" % len(reply.body)),
        (b"x-request-id", (exchange.request_id or "-").encode()),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    exchange.is_replying = True
    await send({"type": "http.response.body", "body": reply.body})
