"""The ASGI apps of the data socket, of TCP, and of the admin socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from starlette.routing import BaseRoute, Router

from edge_agent.server import failures, openapi, request_log, routes
from edge_agent.server.bodies import Bodies
from edge_agent.server.errors import (
    ClientGoneError,
    MethodError,
    RouteNotFoundError,
    StoppingError,
)
from edge_agent.server.exchange import Exchange, request_id
from edge_agent.server.parts import Parts
from edge_agent.server.paths import target
from edge_agent.server.refusals import Refused, uncounted
from edge_agent.server.replies import Reply, send_reply

if TYPE_CHECKING:
    from edge_agent.serve_config import ServeConfig
    from edge_agent.server.auth import Caller
    from edge_agent.server.replies import App, Receive, Scope, Send
    from edge_agent.serving.service import Service

EXCHANGE: Final = "edge_agent.exchange"
_MIB: Final = 1024 * 1024
_LOG: Final = logging.getLogger("edge_agent.server")


class Access(Protocol):
    """Who may ask."""

    def caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        """Returns who asks.

        Raises:
            AgentError: Nobody who may.
        """


def bodies(config: ServeConfig) -> Bodies:
    """Returns what reads bodies; apps that share one have its limits together."""
    return Bodies(config.max_request_mib * _MIB, config.max_queued_mib * _MIB)


def data_app(
    service: Service,
    shared: Bodies,
    access: Access,
    metrics: Callable[[], bytes],
    refused: Refused = uncounted,
) -> App:
    """Returns the app for applications.

    Args:
        service: The models.
        shared: Made by `bodies`.
        access: Who may ask.
        metrics: Renders metrics in Prometheus's text format.
        refused: Told of requests that end before a model is asked.
    """
    document = openapi.document(routes.DATA)
    parts = Parts(service, shared, metrics, document, is_admin=False, refused=refused)
    return _app(parts, routes.DATA, access, ())


def admin_app(
    service: Service,
    shared: Bodies,
    access: Access,
    metrics: Callable[[], bytes],
    more: Sequence[BaseRoute] = (),
    refused: Refused = uncounted,
) -> App:
    """Returns the app for the owner of this machine: everything of the data app, and more.

    Args:
        service: The models.
        shared: Made by `bodies`.
        access: Who may ask.
        metrics: Renders metrics in Prometheus's text format.
        more: Further routes; errors that they raise become replies as everywhere, and
            ``scope[EXCHANGE]`` is their `Exchange`.
        refused: Told of requests that end before a model is asked.
    """
    document = openapi.document(routes.ADMIN, {routes.RELOAD: openapi.reload()})
    parts = Parts(service, shared, metrics, document, is_admin=True, refused=refused)
    return _app(parts, routes.ADMIN, access, more)


def _app(
    parts: Parts, table: Sequence[routes.Route], access: Access, more: Sequence[BaseRoute]
) -> App:
    others = Router(list(more), redirect_slashes=False, default=_not_found)
    return _Gate(_Table(parts, table), others, parts, access)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise RouteNotFoundError("there is nothing at this path")


class _Table:
    """The table of operations, by path and method."""

    def __init__(self, parts: Parts, table: Sequence[routes.Route]) -> None:
        self._handlers: dict[str, dict[str, Callable[[Exchange], Awaitable[Reply]]]] = {}
        for route in table:
            of_path = self._handlers.setdefault(route.path, {})
            of_path[route.method] = partial(route.handler, parts)

    def handler(self, exchange: Exchange) -> Callable[[Exchange], Awaitable[Reply]] | None:
        """Returns what answers a request, which has its target then; None where nothing is.

        Raises:
            BadInputError: The path can't be read.
            MethodError: The path is right, the method isn't.
        """
        found = target(exchange.scope["raw_path"])
        handlers = self._handlers.get(found.template)
        if handlers is None:
            return None
        exchange.target = found
        method = exchange.scope["method"]
        handler = handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            more = ("HEAD",) if "GET" in handlers else ()
            raise MethodError(method, (*handlers, *more))
        return handler


class _Gate:
    """What every request passes: who asks, and what an error becomes."""

    def __init__(self, table: _Table, others: App, parts: Parts, access: Access) -> None:
        self._table = table
        self._others = others
        self._parts = parts
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        exchange = Exchange(scope, receive, headers)
        scope[EXCHANGE] = exchange
        try:
            exchange.request_id = request_id(headers)
            if request_log.is_wanted():
                send = request_log.logged(exchange, send)
            exchange.caller = self._access.caller(scope, headers)
            handler = self._table.handler(exchange)
            if handler is None:
                await self._others(scope, receive, send)
            else:
                await send_reply(await handler(exchange), exchange, send)
        except ClientGoneError:
            return
        except asyncio.CancelledError:
            await self._refuse(StoppingError("the daemon stops"), exchange, send)
        except Exception as error:  # noqa: BLE001 - each becomes a reply
            await self._refuse(error, exchange, send)
        finally:
            self._parts.bodies.release(exchange)
            del scope[EXCHANGE]  # each has the other: memory would wait for a cycle collection

    async def _refuse(self, error: Exception, exchange: Exchange, send: Send) -> None:
        if exchange.is_replying:
            _LOG.error("reply_failed", extra={"request_id": exchange.request_id}, exc_info=error)
            return
        reply = failures.reply(error, exchange.request_id, self._parts.is_admin)
        if not exchange.is_asking:
            self._parts.refused(reply.status, failures.kind(error))
        # A client that waits for "100 Continue" sends no body now: what follows isn't one.
        is_waiting = not exchange.is_read and b"expect" in exchange.headers
        is_stranger = not hasattr(exchange, "caller")  # who wasn't let in doesn't stay
        if is_waiting or is_stranger:
            reply.headers.append((b"connection", b"close"))
        await send_reply(reply, exchange, send)
