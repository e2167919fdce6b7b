"""Reading a whole file that somebody else may have put there."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_regular(path: Path, max_bytes: int, *, follow_links: bool = True) -> bytes:
    """Reads a regular file; a pipe or a device is refused, never waited for.

    Args:
        path: The file.
        max_bytes: No more than one byte beyond this is read, so that the caller sees the excess.
        follow_links: Whether the file itself may be a symbolic link.

    Raises:
        OSError: It can't be opened or read, or isn't a regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    with open(descriptor, "rb") as stream:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(None, "Not a regular file", str(path))
        # What is asked for is allocated; files of the kernel's own (proc(5)) have the size 0.
        return stream.read(min(max_bytes, facts.st_size or max_bytes) + 1)
