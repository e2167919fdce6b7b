"""Files that are either wholly there after a power cut, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

# A temporary file's name must not pass NAME_MAX (255 bytes), however long its target's is.
_KEPT: Final = 40


def write_durably(path: str | os.PathLike[str], data: bytes, mode: int = 0o644) -> None:
    """Writes a file so that a reader sees the old content or all of the new one, never a part.

    Args:
        path: Where the file shall be; an existing file there is replaced.
        data: Its whole content.
        mode: Its permissions, regardless of the umask.

    Raises:
        OSError: The disk is full, the folder is missing or not writable; nothing is left behind.

    Source:
        rename(2): replaces atomically; fsync(2): the folder needs its own fsync.
    """
    with open_durably(path, mode) as stream:
        stream.write(data)


@contextmanager
def open_durably(path: str | os.PathLike[str], mode: int = 0o644) -> Iterator[BinaryIO]:
    """Opens a temporary file that takes its final name when the block ends without an error.

    Args:
        path: Where the file shall be; an existing file there is replaced.
        mode: Its permissions, regardless of the umask.

    Yields:
        The stream to write to.

    Raises:
        OSError: As for `write_durably`; nothing is left behind.
    """
    target = Path(path)
    # 64 random bits.
    temporary = target.with_name(f".{target.name[:_KEPT]}.{os.urandom(8).hex()}.tmp")
    # Created with no more than the final mode: at no moment can more people read it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(target)) from error
    try:
        with open(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(target.parent)


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Removes what a crash in the middle of writing a file has left; for its only writer.

    Args:
        path: As it was given to `write_durably` or `open_durably`.

    Raises:
        OSError: The folder is not writable.
    """
    target = Path(path)
    start = f".{target.name[:_KEPT]}."
    for one in target.parent.iterdir():
        if one.name.startswith(start) and one.name.endswith(".tmp"):
            one.unlink(missing_ok=True)


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
