"""A line in the log for each request, where the log is that fine."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

from edge_agent.telemetry.logs import REQUEST_ID

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.replies import Message, Send

_LOG: Final = logging.getLogger("edge_agent.server")


def is_wanted() -> bool:
    """Whether requests are logged now."""
    return _LOG.isEnabledFor(logging.DEBUG)


def logged(exchange: Exchange, send: Send) -> Send:
    """Has every line that is written for a request bear its id, and its reply logged."""
    REQUEST_ID.set(exchange.request_id)

    async def send_and_log(message: Message) -> None:
        await send(message)
        if message["type"] == "http.response.start":
            _LOG.debug("request", extra=_facts(exchange, message["status"]))

    return send_and_log


def _facts(exchange: Exchange, status: int) -> dict[str, object]:
    target, is_known = exchange.target, hasattr(exchange, "caller")
    return {
        "status": status,
        "ms": round((monotonic() - exchange.arrived) * 1e3, 3),
        "method": exchange.scope["method"],
        "operation": target.template,
        "model": target.name,
        "version": target.version,
        "tenant": exchange.caller.tenant if is_known else None,
    }
