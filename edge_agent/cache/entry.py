"""An answer as bytes that tell whether they are still what was kept."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Struct

from edge_agent import clock
from edge_agent.cache.key import KEY_BYTES
from edge_agent.calls import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_ENTRY_BYTES: Final = 1024 * 1024
_VERSION: Final = b"\x01"
_DOMAIN: Final = b"edge-agent/cache-entry/v1\0"
_CHECK_BYTES: Final = 16
_BODY: Final = len(_VERSION) + _CHECK_BYTES
_NO_TIMINGS: Final[Mapping[str, float]] = {}


class _Body(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key: bytes
    created: int
    answer: Answer


class Kept(NamedTuple):
    """An answer that was kept.

    Attributes:
        answer: Without timings: those were another call's.
        created: When it was computed, in seconds since the epoch.
    """

    answer: Answer
    created: int


def without_timings(answer: Answer) -> Answer:
    """Returns what of an answer is true of every call that asks the same."""
    return Answer(answer.labels, answer.outputs, answer.confident, _NO_TIMINGS)


def encode(key: bytes, kept: Kept) -> bytes | None:
    """Returns a kept answer as bytes; None where it is too large, or not to be written.

    Args:
        key: What it answers; it is kept along, so that a damaged database can't swap answers.
        kept: The answer.
    """
    try:
        body = msgspec.msgpack.encode(_Body(key, kept.created, without_timings(kept.answer)))
    except (TypeError, ValueError, OverflowError):  # such as a label with half a surrogate pair
        return None
    if _BODY + len(body) > MAX_ENTRY_BYTES:
        return None
    return _VERSION + _check(body) + body


def decode(key: bytes, data: object) -> Kept | None:
    """Returns what `encode` was given for this key; None for anything else."""
    if not isinstance(data, bytes) or data[: len(_VERSION)] != _VERSION or len(key) != KEY_BYTES:
        return None
    body = data[_BODY:]
    if _check(body) != data[len(_VERSION) : _BODY]:
        return None
    try:
        read = msgspec.msgpack.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Kept(read.answer, read.created) if read.key == key else None


def seconds_now() -> int:
    """Returns the time in whole seconds since the epoch, never before the agent's release."""
    return int(clock.now().timestamp())


def lasts(created: int, ttl_s: int) -> bool:
    """Says whether an answer may still be given; one from the future has no known age."""
    return 0 <= seconds_now() - created < ttl_s


def size_in_memory(answer: Answer) -> int:
    """Returns about how many bytes an answer takes as objects."""
    labels = sum(len(one.label) for row in answer.labels for one in row)
    count = sum(map(len, answer.labels)) + len(answer.outputs) + len(answer.confident)
    return 500 + 250 * count + labels + sum(len(one.data) for one in answer.outputs)


def _check(body: bytes) -> bytes:
    return sha256(_DOMAIN + body).digest()[:_CHECK_BYTES]
