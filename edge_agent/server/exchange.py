"""One request on its way, with what its headers say."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import count
from time import monotonic
from typing import Any, Final

from edge_agent.calls import Call, Priority, Query
from edge_agent.errors import BadInputError
from edge_agent.server.auth import Caller
from edge_agent.server.paths import Target
from edge_agent.server.replies import Receive, Scope

MAX_TIMEOUT_MS: Final = 3_600_000
REQUEST_ID_PATTERN: Final = "^[A-Za-z0-9._:/+=@-]{1,128}$"
KEY_PATTERN: Final = "^[!-~]{1,255}$"
_REQUEST_ID = re.compile(REQUEST_ID_PATTERN.encode().replace(b"$", rb"\Z"))
_KEY = re.compile(KEY_PATTERN.encode().replace(b"$", rb"\Z"))
_TIMEOUT = re.compile(rb"^[1-9][0-9]{0,6}\Z")
PRIORITIES: Final = {name.lower(): value for name, value in Priority.__members__.items()}
_BOOT: Final = os.urandom(5).hex()
_NUMBERS = count(1)


def request_id(headers: dict[bytes, bytes]) -> str:
    """Returns the caller's id of a request, or makes one.

    Raises:
        BadInputError: It isn't plain.
    """
    given = headers.get(b"x-request-id")
    if given is None:
        return f"{_BOOT}-{next(_NUMBERS)}"
    if not _REQUEST_ID.match(given):
        raise BadInputError("X-Request-ID takes up to 128 letters, digits and ._:/+=@-")
    return given.decode()


class Exchange:
    """One request, from its first byte to the reply.

    Attributes:
        scope: As ASGI has it.
        receive: As ASGI has it.
        headers: By name in lower case.
        caller: Who asks; there once it is known.
        request_id: For logs and the reply.
        target: Which operation on which model.
        held: Bytes of its body that count as held in memory.
        is_read: Whether all of the body has arrived.
        is_asking: Whether a model is being asked: then its errors are counted there.
        is_replying: Whether a reply has begun: then no other one can be sent.
    """

    __slots__ = (
        "arrived",
        "caller",
        "headers",
        "held",
        "is_asking",
        "is_read",
        "is_replying",
        "receive",
        "request_id",
        "scope",
        "target",
    )

    def __init__(self, scope: Scope, receive: Receive, headers: dict[bytes, bytes]) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.request_id = ""
        self.caller: Caller
        self.target = Target("")
        self.held = 0
        self.is_read = False
        self.is_asking = False
        self.is_replying = False
        self.arrived = monotonic()

    def call(
        self,
        query: Query,
        priority: Priority | None = None,
        timeout_s: float | None = None,
        on_queued: Callable[[], None] | None = None,
    ) -> Call:
        """Makes the call that the request stands for.

        Args:
            query: What is asked.
            priority: What the body says; it wins over the header.
            timeout_s: What the body says; the shorter of both counts.
            on_queued: As `Call` has it.

        Raises:
            BadInputError: A header can't be used.
        """
        asked = self._priority() if priority is None else priority
        timeouts = [one for one in (timeout_s, self._timeout_s()) if one is not None]
        return Call(
            self.target.name,
            query,
            self.caller.tenant,
            self.target.version,
            max(asked, self.caller.highest),
            self.arrived + min(timeouts) if timeouts else None,
            self._idempotency_key(),
            self.request_id,
            on_queued,
        )

    def query_parameters(self) -> dict[str, Any]:
        """Returns the parameters behind the ``?``; the last of a name counts."""
        from urllib.parse import parse_qsl

        text = self.scope.get("query_string", b"").decode("latin-1")
        return dict(parse_qsl(text, keep_blank_values=True)) if text else {}

    def _priority(self) -> Priority:
        given = self.headers.get(b"edge-agent-priority")
        if given is None:
            return Priority.NORMAL
        found = PRIORITIES.get(given.decode("latin-1"))
        if found is None:
            raise BadInputError(f"Edge-Agent-Priority takes {', '.join(PRIORITIES)}")
        return found

    def _timeout_s(self) -> float | None:
        given = self.headers.get(b"edge-agent-timeout-ms")
        if given is None:
            return None
        if not _TIMEOUT.match(given) or int(given) > MAX_TIMEOUT_MS:
            raise BadInputError(f"Edge-Agent-Timeout-Ms takes 1 to {MAX_TIMEOUT_MS}")
        return int(given) / 1000

    def _idempotency_key(self) -> str | None:
        given = self.headers.get(b"idempotency-key")
        if given is None:
            return None
        if not _KEY.match(given):
            raise BadInputError("Idempotency-Key takes up to 255 visible ASCII characters")
        return given.decode()
