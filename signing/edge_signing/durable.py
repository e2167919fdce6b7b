"""Files that are either wholly there after a crash, or not at all.

A temporary file is locked while its writer lives. What a crash has left can therefore be told from
what is being written, and the next writer of the same file removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

# A temporary file's name must not pass NAME_MAX (255 bytes), however long its target's is.
_KEPT: Final = 40
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_HARD_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def write_durably(
    path: str | os.PathLike[str],
    data: bytes,
    mode: int = 0o644,
    staging: str | os.PathLike[str] | None = None,
) -> None:
    """Writes a file so that a reader sees the old content or all of the new one, never a part.

    Args:
        path: Where the file shall be; an existing file there is replaced.
        data: Its whole content.
        mode: Its permissions, regardless of the umask.
        staging: As for `open_durably`.

    Raises:
        OSError: As for `open_durably`; nothing is left behind.
    """
    with open_durably(path, mode, staging) as stream:
        stream.write(data)


@contextmanager
def open_durably(
    path: str | os.PathLike[str],
    mode: int = 0o644,
    staging: str | os.PathLike[str] | None = None,
) -> Iterator[BinaryIO]:
    """Opens a temporary file that takes its final name when the block ends without an error.

    Args:
        path: Where the file shall be. An existing file there is replaced, but nothing that is not
            a regular file: a link is neither followed (it may lead to a device) nor replaced.
        mode: Its permissions, regardless of the umask.
        staging: The folder of the temporary file, on the same file system; else the target's own.

    Yields:
        The stream to write to.

    Raises:
        OSError: The disk is full, the folder is missing or not writable, or `path` is something
            other than a regular file (FileExistsError); nothing is left behind.

    Source:
        rename(2): replaces atomically; fsync(2): the folder needs its own fsync.
    """
    target = Path(path)
    _require_replaceable(target)
    with _temporary(target, Path(staging or target.parent), mode) as (temporary, stream):
        yield stream
        _to_disk(stream)
        temporary.replace(target)
    fsync_directory(target.parent)


def create_durably(path: str | os.PathLike[str], data: bytes, mode: int = 0o644) -> None:
    """Writes a file that must not exist yet: it appears with all its content, or not at all.

    Args:
        path: Where the file shall be; whatever is there already, a link too, stays as it is.
        data: Its whole content.
        mode: Its permissions, regardless of the umask.

    Raises:
        FileExistsError: Something of that name exists.
        OSError: The disk is full, the folder is missing or not writable; nothing is left behind.

    Source:
        link(2): fails if the new name exists, unlike rename(2).
    """
    target = Path(path)
    with _temporary(target, target.parent, mode) as (temporary, stream):
        stream.write(data)
        _to_disk(stream)
        give_name(temporary, target)
    try:
        fsync_directory(target.parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Removes what a crash in the middle of writing a file has left; what may not be, stays.

    Args:
        path: As it was given to the function that wrote it. The file of a writer that still lives
            is not touched.
    """
    target = Path(path)
    name = re.escape(target.name[:_KEPT])
    sweep(target.parent, re.compile(rf"\.{name}\.[0-9a-f]{{16}}\.tmp", re.DOTALL))


def sweep(folder: Path, pattern: re.Pattern[str]) -> None:
    """Removes temporary files whose writers are dead; what may not be removed, stays.

    Args:
        folder: Where to look.
        pattern: Which whole names they have.
    """
    with suppress(OSError):
        for one in folder.iterdir():
            if pattern.fullmatch(one.name):
                _remove_if_dead(one)


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Makes the names in a folder survive a power cut.

    Args:
        path: The folder.

    Raises:
        OSError: The folder is missing, or the disk failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_replaceable(target: Path) -> None:
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        reason = "exists, and is a link, a folder or a device instead of a regular file"
        raise FileExistsError(errno.EEXIST, reason, os.fspath(target))


@contextmanager
def _temporary(target: Path, folder: Path, mode: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Yields a new file, locked while it is open; afterwards its name is gone, whatever happens."""
    remove_unfinished(folder / target.name)
    try:
        temporary, descriptor = _create_locked(target.name, folder, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(target)) from error
    try:
        with open(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            yield temporary, stream
    finally:
        temporary.unlink(missing_ok=True)


def _create_locked(name: str, folder: Path, mode: int) -> tuple[Path, int]:
    while True:
        # 64 random bits.
        temporary = folder / f".{name[:_KEPT]}.{os.urandom(8).hex()}.tmp"
        # Created with no more than the final mode: at no moment can more people read it.
        descriptor = os.open(temporary, os.O_WRONLY | _NEW, mode)
        with suppress(OSError):  # a file system without locks: then nobody else gets one either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # somebody swept it before it was locked


def _to_disk(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def give_name(temporary: Path, target: Path) -> None:
    """Gives a finished file a name that nothing has; its first name is its caller's to remove.

    Args:
        temporary: The file.
        target: Its name, on the same file system.

    Raises:
        FileExistsError: Something of that name exists.
        OSError: The folder is missing or not writable.
    """
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise FileExistsError(error.errno, error.strerror, os.fspath(target)) from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # FAT: an empty file reserves the name; a crash right here leaves that empty file.
        os.close(os.open(target, os.O_WRONLY | _NEW, 0o600))
        try:
            temporary.replace(target)
        except BaseException:
            target.unlink(missing_ok=True)
            raise


def _remove_if_dead(path: Path) -> None:
    with suppress(OSError):  # its writer lives, it is another user's, or it has gone
        # O_RDWR: NFS grants an exclusive lock only to who may write.
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(descriptor)
