"""What is wrong with a request before a model sees it. `failures` knows which status that is."""

from __future__ import annotations

from edge_agent.errors import AgentError, BadInputError


class RouteNotFoundError(AgentError):
    """There is nothing at this path."""


class MethodError(AgentError):
    """The path is right, the method isn't.

    Attributes:
        allowed: Methods that are.
    """

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"{method} isn't allowed here; use {' or '.join(allowed)}")
        self.allowed = allowed


class BodyTooLargeError(BadInputError):
    """The body, as sent or unpacked, is larger than the configuration allows."""


class BodyTooSlowError(AgentError):
    """The body wasn't there in time."""


class BodyFormatError(BadInputError):
    """The body is of a type, or packed in a way, that isn't read here."""


class NotAuthenticatedError(AgentError):
    """Nobody knows who asks: no token, no client certificate, or none that counts."""


class NotAllowedError(AgentError):
    """It is known who asks, but this isn't for them."""


class WrongHostError(AgentError):
    """The Host header names another server: a page may have rebound its name to ours."""


class StoppingError(AgentError):
    """The daemon stops and the request wasn't done in time."""


class ClientGoneError(AgentError):
    """Nobody waits for the answer any more."""
