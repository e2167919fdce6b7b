"""What root's worker gives up: it becomes nobody, where nobody can read what it imports."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

# The overflow user, whom the kernel gives nothing. Source: /proc/sys/kernel/overflowuid.
_NOBODY: Final = 65534
# Source: linux/capability.h.
_VERSION: Final = 0x20080522
_MAY_READ: Final = 1 << 2


def give_up_root() -> str | None:
    """Gives up root's user, groups and capabilities for good; the rest of us have none.

    Changing the user makes the kernel forget with whom this process is to end.

    Returns:
        What it is now; None where it wasn't root.
    """
    if os.geteuid() != 0:
        return None
    if _is_readable_for_nobody(places()) and _become_nobody():
        return "user nobody"
    if _give_up_capabilities():
        return "user root, who may read only: others can't read this Python or what it imports"
    return "user root"


def places() -> list[str]:
    """Returns where this interpreter imports from, and what lies there."""
    own = (sys.prefix, sys.base_prefix, *sys.path)
    folders = [path for path in dict.fromkeys(own) if os.path.isdir(path)]
    return folders + [entry.path for path in folders for entry in os.scandir(path)]


def _is_readable_for_nobody(paths: Iterable[str]) -> bool:
    """Whether a stranger may read files and look into folders; asked of the kernel."""
    try:
        os.setgroups([])
        os.setegid(_NOBODY)
        os.seteuid(_NOBODY)
        return all(_may_read(path) for path in paths)
    except OSError:  # in a container that has no such user
        return False
    finally:
        os.seteuid(0)
        os.setegid(os.getgid())


def _may_read(path: str) -> bool:
    wanted = os.R_OK | os.X_OK if os.path.isdir(path) else os.R_OK
    return os.access(path, wanted, effective_ids=True)


def _become_nobody() -> bool:
    with suppress(OSError):
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        return True
    return False


def _give_up_capabilities() -> bool:
    """Keeps but the right to read, which a Python in another user's folder takes, if it is ours."""
    libc, header = ctypes.CDLL(None), struct.pack("=Ii", _VERSION, 0)
    kept = (struct.pack("=6I", rights, rights, 0, 0, 0, 0) for rights in (_MAY_READ, 0))
    return any(libc.capset(header, one) == 0 for one in kept)
