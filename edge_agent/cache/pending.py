"""What waits to be written: bounded, so that a slow disk costs answers in the cache, not memory."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from edge_agent.cache.scripts import Row, Use

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ROWS: Final = 256
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_USES: Final = 4096
BATCH_ROWS: Final = 64
BATCH_BYTES: Final = 1024 * 1024


class Pending:
    """Answers and uses on their way to the disk.

    Attributes:
        is_open: Whether anything is taken.
        dropped: Answers that were not taken.
        came: Set when an answer came.
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._uses: dict[int, tuple[int, int]] = {}
        self.is_open = False
        self.dropped = 0
        self.came = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._rows)

    @property
    def is_batch(self) -> bool:
        """Whether there is enough to be written at once."""
        return len(self._rows) >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def put(self, row: Row) -> bool:
        """Takes an answer; False where there are too many already."""
        size = len(row.value)
        if not self.is_open or len(self._rows) >= MAX_ROWS or self._bytes + size > MAX_BYTES:
            self.dropped += 1
            return False
        self._rows.append(row)
        self._bytes += size
        self.came.set()
        return True

    def note_use(self, number: int, when: int) -> None:
        """Takes in that an answer was given again."""
        if number in self._uses or len(self._uses) < MAX_USES:
            _, before = self._uses.get(number, (0, 0))
            self._uses[number] = (when, before + 1)

    def take_rows(self) -> Sequence[Row]:
        """Takes out the answers of one batch, one at least where there is any."""
        batch: list[Row] = []
        size = 0
        while self._rows and len(batch) < BATCH_ROWS and size < BATCH_BYTES:
            row = self._rows.popleft()
            batch.append(row)
            size += len(row.value)
        self._bytes -= size
        return batch

    def take_uses(self) -> Sequence[Use]:
        """Takes out every use."""
        uses = [Use(number, when, hits) for number, (when, hits) in self._uses.items()]
        self._uses.clear()
        return uses

    def close(self) -> None:
        """Drops everything, and takes nothing more until it is opened again."""
        self.is_open = False
        self.clear()

    def clear(self) -> None:
        """Drops everything."""
        self.dropped += len(self._rows)
        self._rows.clear()
        self._bytes = 0
