"""`infer` through the daemon: no model is opened here, no engine, no image.

Whatever this imports is paid for by each call, so it is next to nothing.
"""

from __future__ import annotations

import os

from edge_agent.answers import SCHEMA
from edge_agent.cli import http_socket, quick_json
from edge_agent.references import is_name
from edge_agent.socket_places import DATA_SOCKET, runtime_dirs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from edge_agent.cli.infer_options import InferOptions
    from edge_agent.errors import AgentError

# A larger image is read in this process, up to what its configuration allows.
MAX_IMAGE_BYTES = 64 << 20
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/@")

# Which error a status means; the exit code follows from it. With any other the daemon says that it
# can't answer, and this process tries: a model that it doesn't have (404), or hasn't ready (503
# without overload), may be this user's.
_ERRORS = {
    400: "BadInputError",
    413: "BadInputError",
    415: "ImageError",
    429: "OverloadedError",
    500: "EngineFailedError",
    503: "OverloadedError",
    504: "DeadlineExceededError",
}


def reach(options: InferOptions) -> Daemon | None:
    """Returns the daemon, where one listens and the command leaves everything to it.

    A path is this user's own file; a choice of engine is for this process, and so is an answer
    that has to be computed.
    """
    if kept_here(options) or not is_name(options.model):
        return None
    for folder in runtime_dirs(os.environ):
        try:
            connection = http_socket.Connection(f"{folder}/{DATA_SOCKET}")
        except http_socket.NoAnswerError:
            continue
        return Daemon(connection, options)
    return None


def kept_here(options: InferOptions) -> str:
    """Returns which choice leaves an answer to this process; empty where none does."""
    if options.no_cache:
        return "--no-cache"
    if options.engine:
        return "--engine"
    if options.inputs:
        return "--input"
    return "EDGE_AGENT_ENGINE" if os.environ.get("EDGE_AGENT_ENGINE") else ""


class Daemon:
    """The daemon's answers for one command."""

    def __init__(self, connection: http_socket.Connection, options: InferOptions) -> None:
        self._connection = connection
        query = "" if options.top_k is None else f"?top_k={options.top_k}"
        self._target = f"/infer/{_quoted(options.model)}{query}"

    def answer(self, source: str, image: bytes) -> dict[str, Any] | None:
        """Returns the answer to one image as a JSON document; None where it has none to give.

        Raises:
            BadInputError: The image is at fault.
            UnavailableError: The daemon has too much to do, or failed over it.
        """
        if len(image) > MAX_IMAGE_BYTES:
            return None
        try:
            answer = self._connection.post(self._target, image)
        except http_socket.NoAnswerError:
            return None
        except (http_socket.OddAnswerError, OSError) as error:
            raise _silent(error) from error
        if answer.status == 200:
            ours = {"input": source, "answered_by": "daemon"}
            return {"schema": SCHEMA, "input": source, **_document(answer), **ours}
        refusal = _refusal(answer, source)
        if refusal is None:
            return None
        raise refusal

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def _quoted(name: str) -> str:
    encoded = name.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in encoded)


def _document(answer: http_socket.Answer) -> dict[str, Any]:
    document = _read(answer)
    if document.get("schema") != SCHEMA:
        from edge_agent.errors import UnavailableError

        raise UnavailableError(
            f"the daemon's answer is no {SCHEMA}",
            hint="restart the daemon: it may be of another version than this command",
        )
    return document


def _read(answer: http_socket.Answer) -> dict[str, Any]:
    """Returns the document in a body, an empty one where there is none."""
    try:
        document = quick_json.decode(answer.body.decode("utf-8").strip())
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _silent(error: Exception) -> AgentError:
    from edge_agent.errors import DeadlineExceededError, UnavailableError

    if isinstance(error, TimeoutError):
        return DeadlineExceededError(
            f"the daemon didn't answer within {http_socket.ANSWER_S:.0f} s"
        )
    return UnavailableError(f"the daemon's answer can't be used: {error}")


def _refusal(answer: http_socket.Answer, source: str) -> AgentError | None:
    """Returns the error that an answer stands for; None where this process should try."""
    from edge_agent import errors

    said = _read(answer)
    kind = _kind(said.get("kind"), answer)
    if kind is None:
        return None
    message = str(said.get("error") or f"the daemon answered {answer.status}")
    hint = str(said["hint"]) if said.get("hint") else None
    if kind is errors.OverloadedError:
        wait = answer.headers.get("retry-after", "")
        wait_s = float(wait) if wait.isdigit() else 1.0
        is_share = answer.status == 429
        return errors.OverloadedError(
            message, retry_after_s=wait_s, is_callers_share=is_share, hint=hint
        )
    return kind(message, path=source, hint=hint)


def _kind(named: object, answer: http_socket.Answer) -> type[AgentError] | None:
    """Returns the kind of error: the one that the daemon names, else as the status says."""
    from edge_agent import errors

    usual = _ERRORS.get(answer.status)
    if usual is None or (answer.status == 503 and named != usual):
        return None
    kind = getattr(errors, named, None) if isinstance(named, str) else None
    family = errors.BadInputError if answer.status < 500 else errors.AgentError
    if isinstance(kind, type) and issubclass(kind, family) and kind is not errors.OverloadedError:
        return kind
    by_status: type[AgentError] = getattr(errors, usual)
    return by_status
