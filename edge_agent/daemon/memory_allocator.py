"""How the C library's allocator deals with large buffers that come and go with each request."""

from __future__ import annotations

import ctypes
from typing import Final

# Source: mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MMAP_BYTES: Final = 8 * 1024 * 1024
_TRIM_BYTES: Final = 32 * 1024 * 1024


def reuse_large_buffers() -> bool:
    """Keeps freed buffers for the next request.

    Otherwise glibc maps each buffer above 128 KiB afresh, and the kernel fills its pages with
    zeros: for a tensor of 600 KB that takes three times as long as the rest of the request.

    Returns:
        Whether the C library does so; others than glibc don't know it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    # An arena a thread would keep what each of them once read.
    values = (
        (_M_MMAP_THRESHOLD, _MMAP_BYTES),
        (_M_TRIM_THRESHOLD, _TRIM_BYTES),
        (_M_ARENA_MAX, 1),
    )
    done = [mallopt(name, value) for name, value in values]
    return all(done)


def give_back() -> None:
    """Gives the kernel what was freed: after a model's files went through, for instance."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return
