"""Files that a worker may open, and what else it may reach, by Landlock.

Source: landlock(7), linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

# What a library reads of the machine. /proc and /dev hold more, such as disks and memory.
_SYSTEM: Final = (
    "usr", "lib*", "bin", "nix/store", "gnu/store", "etc/ld.so.*", "sys",
    "proc/self", "proc/cpuinfo", "proc/meminfo", "proc/stat", "proc/sys/vm",
    "dev/null", "dev/zero", "dev/urandom", "dev/random",
)  # fmt: skip
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
# Rights on files that each version of the interface knows, from the first.
_FILE_RIGHTS: Final = (13, 14, 15, 15, 16)
_BIND_AND_CONNECT: Final = 0b11
_SCOPE_SOCKETS_AND_SIGNALS: Final = 0b11
_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION: Final = 1
_BENEATH: Final = 1


def apply(libc: ctypes.CDLL) -> int:
    """Restricts this thread, and those that it starts, for good.

    Args:
        libc: The C library; PR_SET_NO_NEW_PRIVS is set already.

    Returns:
        Version of the interface that holds; 0 where the kernel has none.
    """
    version: int = libc.syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return 0
    attributes = _attributes(version)
    ruleset: int = libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return 0
    try:
        for path in places():
            _allow(libc, ruleset, path)
        done: int = libc.syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return version if done == 0 else 0


def places() -> list[str]:
    """Returns what may be read: the interpreter, what it imports from, and the system's own."""
    own = (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *sys.path)
    system = [str(path) for pattern in _SYSTEM for path in Path("/").glob(pattern)]
    return [path for path in dict.fromkeys((*own, *system)) if path and os.path.exists(path)]


def _attributes(version: int) -> bytes:
    """Returns struct landlock_ruleset_attr as that version knows it."""
    rights = (1 << _FILE_RIGHTS[min(version, len(_FILE_RIGHTS)) - 1]) - 1
    made = struct.pack("=Q", rights)
    if version >= 4:
        made += struct.pack("=Q", _BIND_AND_CONNECT)
    if version >= 6:
        made += struct.pack("=Q", _SCOPE_SOCKETS_AND_SIGNALS)
    return made


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    with suppress(OSError):  # what we can't see needs no permission
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights = _READ_FILE | _EXECUTE | (_READ_DIR if os.path.isdir(path) else 0)
            libc.syscall(_ADD_RULE, ruleset, _BENEATH, struct.pack("=Qi", rights, place), 0)
        finally:
            os.close(place)
