"""The daemon's sockets: for applications, for its owner, and for the network where configured."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from edge_agent.backends.registry import BACKENDS
from edge_agent.daemon import descriptors
from edge_agent.server import routes, sockets, tokens
from edge_agent.server.admin_routes import DESIRED, DesiredState, Reload
from edge_agent.server.apps import admin_app, data_app
from edge_agent.server.auth import NetworkAccess, SocketAccess, Tenants
from edge_agent.server.listeners import HttpServer, Listener, listen
from edge_agent.server.tokens import Tokens

if TYPE_CHECKING:
    from edge_agent.daemon.building import Rooms
    from edge_agent.daemon.settings import Settings
    from edge_agent.serve_config import ServeConfig
    from edge_agent.server.bodies import Bodies

_LOG: Final = logging.getLogger("edge_agent.daemon")


class TokensInForce:
    """The bearer tokens, which a reload replaces.

    Raises:
        ConfigError: They can't be read.
    """

    def __init__(self, serve: ServeConfig) -> None:
        file = serve.tcp.tokens_file if serve.tcp else None
        self._tokens = tokens.read(Path(file)) if file else Tokens()

    def __call__(self) -> Tokens:
        """Returns them as they are now."""
        return self._tokens

    def adopt(self, fresh: TokensInForce) -> None:
        """Takes the place of the old ones."""
        self._tokens = fresh()


def entrances(
    settings: Settings,
    rooms: Rooms,
    in_force: TokensInForce,
    shared: Bodies,
    own: Bodies,
    reload: Callable[[], Awaitable[list[str]]],
) -> HttpServer:
    """Opens the sockets; they are served when the server is started.

    Args:
        settings: The configuration in force.
        rooms: What answers.
        in_force: Tokens that count on TCP.
        shared: Reads the bodies of applications.
        own: Reads those of the owner: nobody else takes up the room.
        reload: Reads the configuration again; returns the keys that need a restart.

    Raises:
        ConfigError: A socket can't be made, or another daemon listens there.
    """
    config, serve = settings.config, settings.serve
    tenants = Tenants(lambda: settings.serve.tenants)
    local = SocketAccess(tenants)
    state = DesiredState(rooms.reconciler, own, config.state_dir)
    desired = Route(DESIRED, endpoint=state, methods=None)
    again = Route(routes.RELOAD, endpoint=Reload(reload), methods=None)
    refused = rooms.refusals.count
    admin = admin_app(rooms.models, own, local, rooms.render, [desired, again], refused)
    data = data_app(rooms.models, shared, local, rooms.render, refused)
    sockets.folder(config.runtime_dir)
    listeners = [
        listen(data, config.data_socket, serve.socket_group),
        listen(admin, config.admin_socket, is_for_owner=True),
    ]
    if serve.tcp is not None:
        access = NetworkAccess(serve.tcp, in_force, tenants)
        app = data_app(rooms.models, shared, access, rooms.render, refused)
        encrypted = sockets.tls(serve.tcp)
        listeners.append(Listener(app, sockets.tcp_socket(serve.tcp), tls=encrypted))
    for one in listeners:
        _LOG.info("listening", extra={"address": one.address, "encrypted": one.tls is not None})
    workers = serve.workers * len(BACKENDS) * (1 + len(serve.classes))
    most = descriptors.connections(serve.max_connections, len(listeners), workers)
    return HttpServer(listeners, most, refused=refused)
