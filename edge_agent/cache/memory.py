"""The answers that were used last, as objects."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from edge_agent.cache.entry import Kept


class Held(NamedTuple):
    """An answer in memory.

    Attributes:
        kept: The answer.
        size: About how many bytes it takes.
        is_stored: Whether the database has it, or will.
    """

    kept: Kept
    size: int
    is_stored: bool


class AnswerMemory:
    """Answers by key; those that were not used for longest go first.

    Args:
        max_bytes: How much it may hold.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: OrderedDict[bytes, Held] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: bytes) -> Held | None:
        """Returns an answer and counts it as used."""
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
        return held

    def put(self, key: bytes, held: Held) -> None:
        """Keeps an answer, in the place of an earlier one."""
        self.remove(key)
        if held.size > self._max_bytes:
            return
        self._held[key] = held
        self.size += held.size
        while self.size > self._max_bytes:
            _, oldest = self._held.popitem(last=False)
            self.size -= oldest.size

    def remove(self, key: bytes) -> None:
        """Forgets an answer, if it is there."""
        held = self._held.pop(key, None)
        if held is not None:
            self.size -= held.size

    def clear(self) -> None:
        """Forgets everything."""
        self._held.clear()
        self.size = 0
