"""Errors to HTTP statuses and bodies.

The only place that knows statuses of errors, and the only one that decides what an application is
told of a reason: never places on this machine's disk, nor whom its owner trusts.
"""

from __future__ import annotations

import logging
import math
from typing import Final, TypeAlias

from edge_agent import errors as agent
from edge_agent.server import errors as server
from edge_agent.server.datatypes import in_the_protocols_words
from edge_agent.server.replies import Headers, Reply, json_reply
from edge_signing import errors as signing
from edge_signing.errors import printable

_Kinds: TypeAlias = tuple[tuple[type[Exception], int], ...]
_OF_REQUESTS: Final[_Kinds] = (
    (server.RouteNotFoundError, 404),
    (server.MethodError, 405),
    (server.BodyTooLargeError, 413),
    (server.BodyTooSlowError, 408),
    (server.BodyFormatError, 415),
    (server.NotAuthenticatedError, 401),
    (server.NotAllowedError, 403),
    (server.WrongHostError, 421),
    (server.StoppingError, 503),
)
_OF_BUNDLES: Final[_Kinds] = ((agent.DescriptionError, 500), (agent.ModelFileError, 500))
# The first that fits decides.
STATUSES: Final[_Kinds] = (
    *_OF_REQUESTS,
    *_OF_BUNDLES,
    (agent.BadInputError, 400),
    (agent.ModelNotFoundError, 404),
    (agent.EngineFailedError, 500),
    (agent.DeadlineExceededError, 504),
    (agent.WorkerFailedError, 500),
    (agent.UnavailableError, 503),
    (agent.ConfigError, 409),
    (signing.KeyringError, 409),
    (agent.MismatchError, 403),
    (signing.BundleInvalid, 403),
    (signing.NotTrusted, 403),
)
# What these say is about the request or the moment, never about files or trust of this machine.
# Of any other only the kind is told, whatever its sentence holds.
_FOR_CALLERS: Final = (
    *(one for one, _ in _OF_REQUESTS),
    agent.BadInputError,
    agent.OverloadedError,
    agent.DeadlineExceededError,
    agent.ModelNotFoundError,
)
_FOR_THE_OWNER: Final = tuple(one for one, _ in _OF_BUNDLES)  # kinds of BadInputError
_log = logging.getLogger(__name__)


def status(error: Exception) -> int:
    """Returns the status of an error; 500 for one that nobody expected."""
    if isinstance(error, agent.OverloadedError) and error.is_callers_share:
        return 429
    return next((code for one, code in STATUSES if isinstance(error, one)), 500)


def kind(error: Exception) -> str:
    """Returns what callers and counters know an error by."""
    is_ours = isinstance(error, (agent.AgentError, signing.SigningError))
    return type(error).__name__ if is_ours else "InternalError"


def reason(text: str, is_admin: bool) -> str:
    """Returns why a model isn't ready, as far as it may be told."""
    return text if is_admin or not text else _withheld(503)


def reply(error: Exception, request_id: str, is_admin: bool) -> Reply:
    """Returns the reply that tells of an error.

    Args:
        error: What went wrong.
        request_id: To find an unexpected one in the log.
        is_admin: Whether the owner of this machine asks, who is told all.
    """
    if not isinstance(error, (agent.AgentError, signing.SigningError)):
        _log.error("request_failed", extra={"request_id": request_id}, exc_info=error)
        return json_reply({"error": "a fault in the agent", "kind": kind(error)}, 500)
    code = status(error)
    if is_admin:
        told, hint = str(error), error.hint
    elif _is_for_callers(error):
        told, hint = error.message, error.hint
    else:
        _log.debug("reason_withheld", extra={"request_id": request_id, "reason": str(error)})
        told, hint = _withheld(code), None
    if isinstance(error, agent.TensorError):
        told, hint = in_the_protocols_words(told), None  # its hints are about files and NumPy
    body = {"error": printable(told), "kind": kind(error)}
    if hint:
        body["hint"] = printable(hint)
    answer = json_reply(body, code)
    answer.headers.extend(_headers(error))
    return answer


def _is_for_callers(error: Exception) -> bool:
    return isinstance(error, _FOR_CALLERS) and not isinstance(error, _FOR_THE_OWNER)


def _withheld(code: int) -> str:
    what = "failed" if code == 500 else "can't be used now"
    return f"the model {what}; the owner of this machine is told why"


def _headers(error: Exception) -> Headers:
    if isinstance(error, agent.OverloadedError):
        return [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s)))]
    if isinstance(error, server.MethodError):
        return [(b"allow", ", ".join(error.allowed).encode())]
    if isinstance(error, server.NotAuthenticatedError):
        return [(b"www-authenticate", b'Bearer realm="edge-agent"')]
    return []
