"""Asks the daemon over its admin socket."""

from __future__ import annotations

import json
import socket
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Final

from edge_agent.cli import output
from edge_agent.errors import (
    AgentError,
    BadInputError,
    ConfigError,
    ModelNotFoundError,
    UnavailableError,
)
from edge_signing.errors import NotTrusted, SigningError

if TYPE_CHECKING:
    from pathlib import Path

# Loading a model may take its trial on each engine, one after another for all models.
_ANSWER_S: Final = 900.0
_MAX_BYTES: Final = 16 * 1024 * 1024
_KINDS: Final[dict[int, type[AgentError | SigningError]]] = {
    400: BadInputError,
    403: NotTrusted,
    404: ModelNotFoundError,
    409: ConfigError,
}


class DaemonAbsentError(UnavailableError):
    """No daemon listens on the admin socket."""


class NotOursError(ConfigError):
    """The daemon is another user's."""


class _Connection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """Connects to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, target: str, document: Any = None) -> Any:
    """Sends a JSON document to the daemon, and returns the one that it answers.

    Args:
        path: Of the admin socket.
        method: HTTP method.
        target: Path and query, encoded.
        document: What to send; None sends nothing.

    Raises:
        DaemonAbsentError: No daemon listens there.
        NotOursError: It isn't for this user.
        AgentError: What the daemon says is wrong; the kind says what to do.
    """
    connection = _Connection(path)
    body = None if document is None else json.dumps(document).encode()
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        data = response.read(_MAX_BYTES)
        answer = json.loads(data) if data.strip() else None
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise DaemonAbsentError(
            "no daemon listens here", path=str(path), hint="start it: edge-agent serve"
        ) from error
    except PermissionError as error:
        raise NotOursError(
            "is for the daemon's owner only", path=str(path), hint="run this as root"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        raise UnavailableError(f"the daemon did not answer: {error}", path=str(path)) from error
    finally:
        connection.close()
    if response.status >= 300:
        told = answer if isinstance(answer, dict) else {}
        kind = _KINDS.get(response.status, UnavailableError)
        raise kind(str(told.get("error", f"status {response.status}")), hint=told.get("hint"))
    return answer


def have_reloaded(path: Path) -> None:
    """Has the daemon, if one runs, read configuration and keyring again; says so if it can't."""
    try:
        ask(path, "POST", "/reload")
    except (DaemonAbsentError, NotOursError):
        return
    except (AgentError, SigningError) as error:
        output.notice(f"the daemon still goes by the old keyring: {error}")
        output.hint("systemctl reload edge-agent, or send it SIGHUP")
