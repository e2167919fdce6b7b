"""Memory that the daemon and one worker share: tensors and images are written once, and read there.

It has its full size from the start, and can't be resized: neither side ever maps it again, and no
worker can make the daemon touch what isn't there (SIGBUS). Pages take memory when they are first
written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from fcntl import F_ADD_SEALS, F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl
from mmap import MADV_REMOVE, mmap
from typing import Final

from edge_agent.errors import BadInputError
from edge_agent.workers.protocol import Span

MAX_BYTES: Final = 1 << 30
_MIN_BYTES: Final = 1 << 26
# So much stays after a large batch: fresh pages would be faulted in anew for every request.
WARM_BYTES: Final = 4 << 20
_ALIGNMENT: Final = 64
_BLOCK_BYTES: Final = 512  # the unit of st_blocks, whatever the file system


class TensorMemory:
    """A part of memory, and how much of it the batch at hand uses.

    Args:
        descriptor: A memfd, which this object closes.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._map = mmap(descriptor, self.size)
        self._bytes = memoryview(self._map)
        self._used = 0
        self._touched = 0

    @classmethod
    def create(cls, at_most: int = MAX_BYTES) -> TensorMemory:
        """Makes the memory, smaller where the address space is.

        Raises:
            OSError: There is no memory for it.
        """
        descriptor = os.memfd_create("edge-agent-tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            memory = cls._sized(descriptor, at_most)
            fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
        except BaseException:
            os.close(descriptor)
            raise
        return memory

    @classmethod
    def _sized(cls, descriptor: int, size: int) -> TensorMemory:
        while True:
            try:
                os.ftruncate(descriptor, size)
                return cls(descriptor)
            except OSError:
                size //= 2
                if size < _MIN_BYTES:
                    raise

    def reset(self, used: int = 0) -> None:
        """Begins a batch.

        Args:
            used: How much at the beginning stays as it is, in bytes.
        """
        self._used = used

    def reserve(self, size: int) -> tuple[Span, memoryview]:
        """Returns a part that nothing else of this batch uses; what it holds is undefined.

        Raises:
            BadInputError: The batch takes more than there is.
        """
        start = -(-self._used // _ALIGNMENT) * _ALIGNMENT
        if size > self.size - start:
            raise BadInputError(
                f"takes more than the {self.size >> 20} MiB that a worker has for its inputs and "
                "outputs together",
                hint="ask for less at a time",
            )
        self._used = start + size
        span = Span(start, size)
        return span, self.view(span)

    def put(self, data: bytes | bytearray | memoryview) -> Span:
        """Copies bytes.

        Raises:
            BadInputError: The batch takes more than there is.
        """
        raw = memoryview(data).cast("B")
        span, place = self.reserve(len(raw))
        place[:] = raw
        return span

    def view(self, span: Span) -> memoryview:
        """Returns what a span holds; it may change as soon as the next batch begins.

        Raises:
            ValueError: The span leaves the memory.
        """
        end = span.offset + span.size
        if span.offset < 0 or span.size < 0 or end > self.size:
            raise ValueError(f"{span} is outside of {self.size} bytes")
        self._touched = max(self._touched, end)
        return self._bytes[span.offset : end]

    def give_back(self) -> None:
        """Frees what a large batch used, for both sides; spans of that batch hold zeros then."""
        if self._touched <= WARM_BYTES:
            return
        with suppress(OSError):  # a kernel that can't keeps the memory for the next large batch
            self._map.madvise(MADV_REMOVE, WARM_BYTES, self.size - WARM_BYTES)
        self._touched = 0

    def close(self) -> None:
        """Lets go of the memory; views that somebody still holds stay valid."""
        if self.descriptor < 0:
            return
        self._bytes.release()
        with suppress(BufferError):
            self._map.close()
        os.close(self.descriptor)
        self.descriptor = -1


def written_bytes(descriptor: int) -> int:
    """Returns how much of such a memory has been touched, and is held for it."""
    return os.fstat(descriptor).st_blocks * _BLOCK_BYTES
