"""Bodies of requests: bounded in size, in time, and all together."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from edge_agent.errors import BadInputError, OverloadedError
from edge_agent.server.codings import decoded
from edge_agent.server.errors import BodyTooLargeError, BodyTooSlowError, ClientGoneError

if TYPE_CHECKING:
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.replies import Receive

TIMEOUT_S: Final = 60.0
# A body that says to be larger is given memory as it comes, not on its word.
_TRUSTED_BYTES: Final = 4 * 1024 * 1024
_MAX_DIGITS: Final = 18  # of a number that is computed with


class Bodies:
    """Reads bodies.

    Args:
        max_bytes: Largest body, as sent and unpacked.
        max_held_bytes: Of all requests whose bytes no queue counts yet; half of it of one tenant.
        timeout_s: How long one may take to arrive, in seconds.
    """

    def __init__(self, max_bytes: int, max_held_bytes: int, timeout_s: float = TIMEOUT_S) -> None:
        self._max_bytes = max_bytes
        self._max_held_bytes = max(max_bytes, max_held_bytes)
        self._timeout_s = timeout_s
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
            BodyTooSlowError: It took too long.
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
        ending = _Ending(task)
        timer = loop.call_later(self._timeout_s, ending)
        try:
            return await self._received(exchange, declared)
        except asyncio.CancelledError:
            if ending.has_come and task.uncancel() == 0:
                raise BodyTooSlowError(f"the body took more than {self._timeout_s:.0f} s") from None
            raise
        finally:
            timer.cancel()

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
        if self._held_bytes + size > self._max_held_bytes:
            raise OverloadedError("too much is being read already", retry_after_s=1.0)
        tenant = exchange.caller.tenant
        of_tenant = self._of_tenants.get(tenant, 0) + size
        if of_tenant > max(self._max_bytes, self._max_held_bytes // 2):
            raise OverloadedError(
                "too much of yours is being read already", retry_after_s=1.0, is_callers_share=True
            )
        self._of_tenants[tenant] = of_tenant
        self._held_bytes += size
        exchange.held += size


class _Ending:
    """Cancels a task when it is called, and remembers that."""

    __slots__ = ("_task", "has_come")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.has_come = False

    def __call__(self) -> None:
        self.has_come = True
        self._task.cancel()


async def _next(receive: Receive) -> tuple[bytes | bytearray, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError("the client went away")
    return message.get("body", b""), message.get("more_body", False)
