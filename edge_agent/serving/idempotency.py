"""A call that is sent again gets the reply of the first time."""

from __future__ import annotations

import copy
import time
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from edge_agent.calls import Reply
from edge_agent.errors import BadInputError
from edge_agent.scheduler.alarm import Clock
from edge_agent.serving.single_flight import SingleFlight

T = TypeVar("T")

Key: TypeAlias = tuple[str, str, str]
"""Tenant, model, and the key that the tenant gave."""

_OVERHEAD_BYTES: Final = 512


class _Kept(Struct, Generic[T]):
    """What came of a call."""

    fingerprint: bytes
    expires: float
    size: int
    outcome: T | BadInputError


class _Shelf:
    """What is kept for one tenant.

    Attributes:
        keys: The oldest first.
        size: Their bytes.
    """

    def __init__(self) -> None:
        self.keys: OrderedDict[Key, None] = OrderedDict()
        self.size = 0


class Idempotency(Generic[T]):
    """Replies by idempotency key, bounded in number, bytes and time.

    A refusal of the input is kept like a reply. Any other failure isn't: a retry is executed.
    Beyond the bounds the oldest goes of the tenant who has most: nobody drives out all the others.

    Args:
        max_entries: How many are kept.
        ttl_s: How long, in seconds.
        max_bytes: Their bytes together.
        size_of: Tells those of a result.
        clock: The time.
    """

    def __init__(
        self,
        max_entries: int,
        ttl_s: float,
        *,
        max_bytes: int,
        size_of: Callable[[T], int],
        clock: Clock = time.monotonic,
    ) -> None:
        self._max_entries = max_entries
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._clock = clock
        self._kept: OrderedDict[Key, _Kept[T]] = OrderedDict()
        self._shelves: defaultdict[str, _Shelf] = defaultdict(_Shelf)
        self._flights: SingleFlight[T] = SingleFlight()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def run(self, key: Key, fingerprint: bytes, work: Callable[[], Awaitable[T]]) -> T:
        """Executes a call, or returns what came of it the first time.

        Args:
            key: Which call.
            fingerprint: Digest of its query.
            work: Executes it.

        Raises:
            BadInputError: The key was used with another query; or the work raised it.
            BaseException: What else the work raises.
        """
        self._drop_expired()
        kept = self._kept.get(key)
        first = kept.fingerprint if kept else self._flights.fingerprint(key)
        if first is not None and first != fingerprint:
            raise BadInputError(
                f"the idempotency key {key[2]!r} was used for another query",
                hint="take a new key for each query",
            )
        if kept is None:
            execute = partial(self._execute, key, fingerprint, work)
            return await self._flights.run(key, execute, fingerprint)
        if isinstance(kept.outcome, BadInputError):
            # A copy: one that is raised again and again collects tracebacks, and what they hold.
            raise copy.copy(kept.outcome)
        return kept.outcome

    async def _execute(self, key: Key, fingerprint: bytes, work: Callable[[], Awaitable[T]]) -> T:
        try:
            result = await work()
        except BadInputError as error:
            self._keep(key, fingerprint, copy.copy(error), 0)
            raise
        self._keep(key, fingerprint, result, self._size_of(result))
        return result

    def _keep(self, key: Key, fingerprint: bytes, outcome: T | BadInputError, size: int) -> None:
        size += _OVERHEAD_BYTES + sum(len(part) for part in key)
        if size > self._max_bytes:
            return
        # Work that was given up may end well all the same, beside that of a second caller.
        if key in self._kept:
            self._drop(key)
        self._kept[key] = _Kept(fingerprint, self._clock() + self._ttl_s, size, outcome)
        shelf = self._shelves[key[0]]
        shelf.keys[key] = None
        shelf.size += size
        self._bytes += size
        while len(self._kept) > self._max_entries:
            self._drop_from(max(self._shelves.values(), key=lambda one: len(one.keys)))
        while self._bytes > self._max_bytes:
            self._drop_from(max(self._shelves.values(), key=lambda one: one.size))

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.expires > now:
                return
            self._drop(key)

    def _drop_from(self, shelf: _Shelf) -> None:
        self._drop(next(iter(shelf.keys)))

    def _drop(self, key: Key) -> None:
        size = self._kept.pop(key).size
        shelf = self._shelves[key[0]]
        del shelf.keys[key]
        shelf.size -= size
        self._bytes -= size
        if not shelf.keys:
            del self._shelves[key[0]]


def reply_bytes(reply: Reply) -> int:
    """Returns about how many bytes a reply holds."""
    labels = sum(len(row) for row in reply.answer.labels)
    return 128 * labels + sum(len(output.data) for output in reply.answer.outputs)
