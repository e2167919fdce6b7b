"""How the C library's allocator deals with large buffers that come and go with each request."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Final

# Source: mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 32 * 1024 * 1024


def reuse_large_buffers(up_to_bytes: int = _KEPT_BYTES, arenas: int | None = None) -> None:
    """Keeps freed buffers for the next request.

    Otherwise glibc maps each buffer above 128 KiB afresh, and the kernel fills its pages with
    zeros: for a tensor of 600 KB that takes three times as long as the rest of a request to the
    daemon, and decoding a photo takes half as long again.

    Args:
        up_to_bytes: Larger buffers are mapped each time; at most 32 MiB.
        arenas: Most arenas: one a thread would keep what each of them once held. None means as
            many as the C library takes.
    """
    try:
        mallopt = _libc().mallopt
    except AttributeError:  # not glibc
        return
    values = [(_M_MMAP_THRESHOLD, up_to_bytes), (_M_TRIM_THRESHOLD, _KEPT_BYTES)]
    if arenas is not None:
        values.append((_M_ARENA_MAX, arenas))
    for name, value in values:
        mallopt(name, value)


def give_back() -> None:
    """Gives the kernel what was freed: after a model's files went through, for instance."""
    gc.collect()  # what hangs together in circles would stay until thousands more do
    try:
        _libc().malloc_trim(0)
    except AttributeError:
        return


@cache
def _libc() -> ctypes.CDLL:
    """Returns the C library; each that is made makes a class of its own."""
    return ctypes.CDLL(None)
