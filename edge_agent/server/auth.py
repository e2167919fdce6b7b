"""Who asks: a peer on a Unix socket, a token, or a client certificate; never a name in a header."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from msgspec import Struct

from edge_agent.calls import Priority
from edge_agent.errors import BadInputError
from edge_agent.server.errors import NotAllowedError, NotAuthenticatedError, WrongHostError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_agent.serve_config import TcpConfig, TenantConfig
    from edge_agent.server.replies import Scope
    from edge_agent.server.tokens import Tokens

PEER: Final = "edge_agent.peer"


class Caller(Struct, frozen=True):
    """Who asks.

    Attributes:
        tenant: ``uid:1000``, ``token:camera`` or ``cert:NAME``.
        highest: The most urgent class that it may ask for.
        is_local: Whether it came through a Unix socket.
    """

    tenant: str
    highest: Priority = Priority.CRITICAL
    is_local: bool = True


class Tenants:
    """What tenants may ask for.

    Args:
        configured: Their tables, as configured now.
    """

    def __init__(self, configured: Callable[[], Mapping[str, TenantConfig]]) -> None:
        self._configured = configured

    def caller(self, tenant: str, is_local: bool) -> Caller:
        """Returns a tenant as a caller."""
        found = self._configured().get(tenant)
        highest = Priority[found.highest_class.upper()] if found else Priority.CRITICAL
        return Caller(tenant, highest, is_local)


class SocketAccess:
    """Takes whoever the kernel let connect to a Unix socket, as the user it says.

    Args:
        tenants: What they may ask for.
    """

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    def caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:  # noqa: ARG002
        """Returns who asks.

        Raises:
            NotAuthenticatedError: The kernel didn't say who it is.
        """
        peer = scope["state"].get(PEER)
        if peer is None:
            raise NotAuthenticatedError("the peer of this socket has no known user")
        return self._tenants.caller(peer, is_local=True)


class NetworkAccess:
    """Takes who has a token or a client certificate, and speaks to this host by a name of its own.

    Args:
        config: Names that count.
        tokens: Tokens that count, as they are now.
        tenants: What their holders may ask for.
    """

    def __init__(self, config: TcpConfig, tokens: Callable[[], Tokens], tenants: Tenants) -> None:
        self._hosts = frozenset(host.lower() for host in (*config.hosts, config.address))
        self._tokens = tokens
        self._tenants = tenants

    def caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        """Returns who asks.

        Raises:
            BadInputError: There isn't exactly one Host header, or another one is there twice.
            WrongHostError: It names another host.
            NotAllowedError: It comes from the page of another host.
            NotAuthenticatedError: No token and no certificate that counts.
        """
        names = [name for name, _ in scope["headers"]]
        if names.count(b"authorization") > 1 or names.count(b"origin") > 1:
            raise BadInputError("Authorization and Origin may each be there once")
        self._check_host(scope)
        self._check_origin(scope, headers.get(b"origin"))
        given = headers.get(b"authorization")
        if given is not None:
            return self._tenants.caller(f"token:{self._tokens().name(_bearer(given))}", False)
        peer = scope["state"].get(PEER)
        if peer is None:
            raise NotAuthenticatedError(
                "a token is needed here", hint="send it as Authorization: Bearer TOKEN"
            )
        return self._tenants.caller(peer, is_local=False)

    def _check_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise BadInputError("exactly one Host header is needed")
        if not self._is_ours(_host(f"//{hosts[0].decode('latin-1')}"), scope):
            raise WrongHostError(
                "the Host header names another server",
                hint="serve.tcp.hosts in config.toml lists the names that are taken",
            )

    def _check_origin(self, scope: Scope, origin: bytes | None) -> None:
        if origin is not None and not self._is_ours(_host(origin.decode("latin-1")), scope):
            raise NotAllowedError("pages of other hosts can't ask here")

    def _is_ours(self, host: str, scope: Scope) -> bool:
        if host in self._hosts:
            return True
        # A rebound name never is an address: that of the connection itself can't mislead.
        own = str(scope["server"][0]) if scope.get("server") else ""
        return bool(host) and (host == own or (host == "localhost" and is_loopback(own)))


def _bearer(header: bytes) -> bytes:
    scheme, _, token = header.strip().partition(b" ")
    if scheme.lower() != b"bearer":
        raise NotAuthenticatedError("only Bearer tokens are taken")
    return token.strip()


def _host(url: str) -> str:
    """Returns the host of a URL in lower case; empty where there is none."""
    try:
        split = urlsplit(url)
        is_odd = split.username is not None or split.port == 0
    except ValueError:  # among others, of a port that is none
        return ""
    return "" if is_odd else split.hostname or ""


def is_loopback(address: str) -> bool:
    """Whether only this machine can send to an address; a name is none."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
