"""Operations that tell of the server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.server import v2_documents
from edge_agent.server.replies import Reply, json_reply
from edge_agent.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.parts import Parts

_METRICS: Final = CONTENT_TYPE.encode()


async def alive(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Tells clients of KServe's v1 protocol that the server lives."""
    return json_reply({"status": "alive"})


async def live(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Tells that the server lives."""
    return json_reply({"live": True})


async def ready(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Tells whether every model that should be served is.

    The protocol's text calls the member ``live``, its clients read ``ready``: both are there.
    """
    is_ready = parts.service.is_ready()
    return json_reply({"live": True, "ready": is_ready}, 200 if is_ready else 503)


async def metadata(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Tells which server this is."""
    return json_reply(v2_documents.server())


async def metrics(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Gives the metrics to Prometheus."""
    return Reply(parts.metrics(), 200, _METRICS)


async def openapi(parts: Parts, exchange: Exchange) -> Reply:  # noqa: ARG001
    """Gives the OpenAPI document."""
    return Reply(parts.openapi)
