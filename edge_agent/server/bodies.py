"""Bodies of requests: bounded in size, in time, and all together."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from edge_agent.errors import BadInputError, OverloadedError
from edge_agent.server.codings import decoded
from edge_agent.server.errors import BodyTooLargeError, BodyTooSlowError, ClientGoneError

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.replies import Receive

TIMEOUT_S: Final = 60.0
# So often a body is looked at: a large one must get on by so much a second while memory is short.
_LOOK_S: Final = 5.0
_LEAST_PER_S: Final = 1024 * 1024
# A body that says to be larger is given memory as it comes, not on its word.
_TRUSTED_BYTES: Final = 4 * 1024 * 1024
_MAX_DIGITS: Final = 18  # of a number that is computed with


class Bodies:
    """Reads bodies.

    Args:
        max_bytes: Largest body, as sent and unpacked.
        max_held_bytes: Of all requests whose bytes no queue counts yet. No tenant holds more than
            it leaves free, so that there is room for one more, however many there are.
        timeout_s: How long one may take to arrive, in seconds.
        look_s: See `_LOOK_S`.
    """

    def __init__(
        self,
        max_bytes: int,
        max_held_bytes: int,
        timeout_s: float = TIMEOUT_S,
        look_s: float = _LOOK_S,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_held_bytes = max(max_bytes, max_held_bytes)
        self._timeout_s = timeout_s
        self._look_s = min(look_s, timeout_s)
        self._held_bytes = 0
        self._of_tenants: dict[str, int] = {}

    def reconfigure(self, max_mib: int, max_held_mib: int) -> None:
        """Changes the limits for requests that come from now on, in MiB."""
        self._max_bytes = max_mib << 20
        self._max_held_bytes = max(max_mib, max_held_mib) << 20

    async def read(self, exchange: Exchange) -> bytes | bytearray:
        """Returns the body of a request.

        It counts as held until its request is given to `release`.

        Raises:
            BodyTooLargeError: It is larger than one may be.
            BodyTooSlowError: It took too long, or hardly got on while memory was short.
            BodyFormatError: It is packed in a way that isn't read here.
            BadInputError: It is packed, but damaged.
            OverloadedError: Too much is held already, or of this tenant.
            ClientGoneError: It broke off.
        """
        declared = self._declared(exchange.headers.get(b"content-length"))
        body = await self._received_in_time(exchange, declared)
        exchange.is_read = True
        coding = exchange.headers.get(b"content-encoding")
        if coding is None:
            return body
        unpacked = await decoded(body, coding, self._max_bytes)
        self.release(exchange)
        self._hold(exchange, len(unpacked))
        return unpacked

    def release(self, exchange: Exchange) -> None:
        """Counts the body of a request as no longer held."""
        held, exchange.held = exchange.held, 0
        if held:
            self._held_bytes -= held
            left = self._of_tenants.pop(exchange.caller.tenant) - held
            if left:
                self._of_tenants[exchange.caller.tenant] = left

    def _declared(self, header: bytes | None) -> int | None:
        if header is None:
            return None
        if not header.isdigit():
            raise BadInputError("Content-Length isn't a number")
        size = int(header) if len(header) <= _MAX_DIGITS else sys.maxsize
        self._check_size(size)
        return size

    async def _received_in_time(
        self, exchange: Exchange, declared: int | None
    ) -> bytes | bytearray:
        """As `asyncio.timeout` would have it, with a third of its work for each request."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - coroutines run in tasks
        looks = _Looks(self._is_slow, exchange, task)
        looks.timer = loop.call_later(self._look_s, looks)
        try:
            return await self._received(exchange, declared)
        except asyncio.CancelledError:
            if looks.reason and task.uncancel() == 0:
                raise BodyTooSlowError(looks.reason) from None
            raise
        finally:
            looks.timer.cancel()

    def _is_slow(self, looks: _Looks) -> str:
        """Returns why a body is given up, or has it looked at again."""
        looks.count += 1
        if looks.count * self._look_s >= self._timeout_s:
            return f"the body took more than {self._timeout_s:.0f} s"
        held = looks.exchange.held
        got_on, looks.seen = held - looks.seen, held
        is_short = self._held_bytes > self._max_held_bytes // 2
        if is_short and held > _TRUSTED_BYTES and got_on < _LEAST_PER_S * self._look_s:
            return "the body comes too slowly: others need the memory"
        looks.timer = asyncio.get_running_loop().call_later(self._look_s, looks)
        return ""

    async def _received(self, exchange: Exchange, declared: int | None) -> bytes | bytearray:
        receive = exchange.receive
        chunk, is_more = await _next(receive)
        self._hold(exchange, len(chunk))
        if not is_more:
            self._check_size(len(chunk))
            return chunk
        room = declared if declared is not None and declared <= _TRUSTED_BYTES else 0
        body = bytearray(max(room, len(chunk)))
        body[: len(chunk)] = chunk
        size = len(chunk)
        while is_more:
            chunk, is_more = await _next(receive)
            self._hold(exchange, len(chunk))
            body[size : size + len(chunk)] = chunk
            size += len(chunk)
            self._check_size(size)
        del body[size:]
        return body

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise BodyTooLargeError(
                f"the body is larger than {self._max_bytes >> 20} MiB",
                hint="serve.max_request_mib in config.toml sets this limit",
            )

    def _hold(self, exchange: Exchange, size: int) -> None:
        if not size:
            return
        tenant = exchange.caller.tenant
        of_tenant = self._of_tenants.get(tenant, 0) + size
        held = self._held_bytes + size
        left = self._max_held_bytes - held
        is_alone = held == of_tenant <= self._max_bytes
        if left < 0 or (of_tenant > left and not is_alone):
            raise self._overloaded(of_tenant)
        self._of_tenants[tenant] = of_tenant
        self._held_bytes = held
        exchange.held += size

    def _overloaded(self, of_tenant: int) -> OverloadedError:
        if of_tenant > self._max_held_bytes // (len(self._of_tenants) + 1):
            message = "too much of yours is being read already"
            return OverloadedError(message, retry_after_s=1.0, is_callers_share=True)
        return OverloadedError("too much is being read already", retry_after_s=1.0)


class _Looks:
    """Looks at a body from time to time, and cancels the task that reads it with a reason.

    Attributes:
        exchange: Whose body it is.
        timer: Of the next look.
        count: How many there were.
        seen: What was held at the last one.
        reason: Why the task was cancelled.
    """

    __slots__ = ("_is_slow", "_task", "count", "exchange", "reason", "seen", "timer")

    def __init__(
        self, is_slow: Callable[[_Looks], str], exchange: Exchange, task: asyncio.Task[Any]
    ) -> None:
        self._is_slow = is_slow
        self._task = task
        self.exchange = exchange
        self.timer: asyncio.TimerHandle
        self.count = self.seen = 0
        self.reason = ""

    def __call__(self) -> None:
        self.reason = self._is_slow(self)
        if self.reason:
            self._task.cancel()


async def _next(receive: Receive) -> tuple[bytes | bytearray, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("the client went away")
    return message.get("body", b""), message.get("more_body", False)
