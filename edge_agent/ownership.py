"""Folders that are the agent's alone, and who may change what lies in them."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING

from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def require_ours(path: Path) -> None:
    """Refuses a file or folder that anyone but its owner and root can change.

    Args:
        path: A file or folder; one that isn't there is nobody's.

    Raises:
        ConfigError: It belongs to another user, or its group or others may write.
    """
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if facts.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            "belongs to another user, who could change whom this agent trusts",
            path=str(path),
            hint=f"run: chown {os.geteuid()} {path}",
        )
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            "can be changed by others, who could change whom this agent trusts",
            path=str(path),
            hint=f"run: chmod go-w {path}",
        )


def private_folder(folder: Path, mode: int = 0o755) -> None:
    """Makes a folder that nobody else can write, with its parents, so that a power cut keeps them.

    Args:
        folder: An existing one stays as it is.
        mode: Of the folder; parents that are missing get 0755. The umask can't widen it.

    Raises:
        OSError: It can't be made.
    """
    from edge_signing.durable import fsync_directory

    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        wanted = mode if one == folder else 0o755
        one.mkdir(mode=wanted, exist_ok=True)
        one.chmod(wanted)
        fsync_directory(one.parent)


@contextmanager
def locked(file: Path, timeout_s: float) -> Iterator[None]:
    """Holds a lock that ends with the process.

    Args:
        file: The lock's file; it stays.
        timeout_s: How long to wait for another process.

    Raises:
        TimeoutError: Another process still holds it.
        OSError: The file can't be made.
    """
    lock = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline = monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if monotonic() > deadline:
                    raise TimeoutError(str(file)) from error
                sleep(0.05)
        yield
    finally:
        os.close(lock)
