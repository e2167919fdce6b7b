"""SHA-256 over streams, in constant memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import BinaryIO

BUFFER_BYTES = 1024 * 1024

Progress = Callable[[int], None]
"""Called with the number of bytes just read."""

Sink = Callable[[memoryview], object]
"""Takes the bytes just hashed; they are valid only during the call."""


def hash_stream(
    stream: BinaryIO,
    progress: Progress | None = None,
    at_most: int | None = None,
    sink: Sink | None = None,
) -> str:
    """Hashes what is left of a stream.

    Args:
        stream: A binary stream that has `readinto`.
        progress: Called after each piece with its length in bytes.
        at_most: Stop after this many bytes and one more, so that a file that somebody keeps
            growing ends. The extra byte is hashed: the digest of a longer file never matches.
        sink: Takes each piece after it was hashed, to copy exactly the bytes that were hashed.

    Returns:
        The digest as 64 lower-case hexadecimal digits.

    Raises:
        OSError: The stream cannot be read.

    Source:
        FIPS 180-4 (SHA-256).
    """
    left = BUFFER_BYTES if at_most is None else at_most + 1
    view = memoryview(bytearray(min(BUFFER_BYTES, left)))
    state = hashlib.sha256()
    readinto = stream.readinto  # type: ignore[attr-defined]  # BinaryIO does not declare it
    while left > 0 and (count := readinto(view[:left])):
        piece = view[:count]
        state.update(piece)
        if sink is not None:
            sink(piece)
        if progress is not None:
            progress(count)
        if at_most is not None:
            left -= count
    return state.hexdigest()


def sha256_hex(data: bytes) -> str:
    """Returns the SHA-256 of some bytes as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def is_sha256_hex(text: object) -> bool:
    """Tells whether a value is 64 lower-case hexadecimal digits."""
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")
