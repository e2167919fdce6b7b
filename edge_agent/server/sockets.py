"""The sockets that the daemon listens on, and the folder of the Unix ones."""

from __future__ import annotations

import grp
import os
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent.errors import ConfigError
from edge_agent.ownership import private_folder, require_ours
from edge_agent.server.auth import is_loopback
from edge_agent.server.tokens import require_private

if TYPE_CHECKING:
    from edge_agent.serve_config import TcpConfig

_BACKLOG: Final = 512
# Source: unix(7): sun_path has 108 bytes, the last of them zero.
_MAX_PATH_BYTES: Final = 107
_MODE: Final = 0o660
_OWNERS_MODE: Final = 0o600


def folder(path: Path) -> None:
    """Makes the folder of the sockets, if it isn't there.

    Raises:
        ConfigError: It can't be made, or others can change what lies in it.
    """
    try:
        private_folder(path, 0o755)
    except OSError as error:
        raise ConfigError(
            f"can't be made: {error.strerror}",
            path=str(path),
            hint="EDGE_AGENT_RUNTIME_DIR names another folder for the sockets",
        ) from error
    require_ours(path)


def unix_socket(path: Path, group: str | None = None, is_for_owner: bool = False) -> socket.socket:
    """Listens on a Unix socket that its owner and one group may use.

    It appears under its name with its rights already set, in place of one that a dead daemon left.

    Args:
        path: Its name.
        group: Who may use it beside the owner; None leaves it the daemon's own group.
        is_for_owner: Whether it is for the owner alone: of root's daemon also for root's group,
            whatever group the daemon runs in.

    Raises:
        ConfigError: Another daemon listens there, or it can't be made.
    """
    if len(os.fsencode(path)) + len(".new") > _MAX_PATH_BYTES:
        raise ConfigError(
            f"is too long for a socket: {_MAX_PATH_BYTES} bytes at most",
            path=str(path),
            hint="EDGE_AGENT_RUNTIME_DIR names another folder",
        )
    if _answers(path):
        raise ConfigError("another daemon answers there already", path=str(path))
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.unlink(missing_ok=True)
        made.bind(str(fresh))
        fresh.chmod(_OWNERS_MODE if is_for_owner and os.geteuid() else _MODE)
        if is_for_owner and os.geteuid() == 0:
            os.chown(fresh, 0, 0)
        if group is not None:
            os.chown(fresh, -1, group_id(group))
        made.listen(_BACKLOG)
        made.setblocking(False)
        fresh.rename(path)
    except OSError as error:
        _give_up(made, fresh)
        raise ConfigError(
            f"can't be made: {error.strerror}",
            path=error.filename or str(path),
            hint="EDGE_AGENT_RUNTIME_DIR names another folder for the sockets",
        ) from error
    except ConfigError:
        _give_up(made, fresh)
        raise
    return made


def _give_up(made: socket.socket, name: Path) -> None:
    made.close()
    with suppress(OSError):  # what has the name may be no socket
        name.unlink()


def tcp_socket(config: TcpConfig) -> socket.socket:
    """Listens on a TCP port.

    Raises:
        ConfigError: It can't.
    """
    place = f"{config.address}:{config.port}"
    family = socket.AF_INET6 if ":" in config.address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((config.address, config.port))
        made.listen(_BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise ConfigError(f"can't be listened on: {error.strerror}", path=place) from error
    return made


def tls(config: TcpConfig) -> ssl.SSLContext | None:
    """Returns how connections are encrypted; None where they are plain.

    Raises:
        ConfigError: A file can't be used, or one is missing; or tokens would go over a network
            in the clear.
    """
    if not config.tokens_file and not config.client_ca:
        raise ConfigError(
            "nobody could get in through serve.tcp",
            hint="set serve.tcp.tokens_file, or client_ca with certificate and key",
        )
    if config.certificate is None or config.key is None:
        if config.certificate or config.key or config.client_ca:
            raise ConfigError("serve.tcp needs certificate and key, both or neither")
        if not is_loopback(config.address):
            raise ConfigError(
                f"serve.tcp would take tokens in the clear at {config.address}",
                hint="set serve.tcp.certificate and key, or listen on 127.0.0.1 behind a proxy",
            )
        return None
    require_private(Path(config.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(config.certificate, config.key, _no_password)
    except OSError as error:
        raise ConfigError(
            f"can't be used with its key: {_reason(error)}", path=config.certificate
        ) from error
    if config.client_ca is not None:
        try:
            context.load_verify_locations(config.client_ca)
        except OSError as error:
            raise ConfigError(f"can't be used: {_reason(error)}", path=config.client_ca) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _no_password() -> str:
    """Answers a key that has one with nothing: nobody is there to be asked."""
    return ""


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or type(error).__name__


def group_id(name: str) -> int:
    """Returns the number of the group that `serve.socket_group` names.

    Raises:
        ConfigError: There is none.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"there is no group {name!r}", hint="serve.socket_group in config.toml names it"
        ) from error


def _answers(path: Path) -> bool:
    """Whether anybody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except BlockingIOError:
            return True  # its queue is full
        except OSError:
            return False
        return True
