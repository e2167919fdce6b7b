"""Where a bundle's files come from: a folder, an OCI archive, or memory.

A source hands out names and bytes and refuses what can never be in a bundle; it believes and
checks no signature.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from edge_signing.closing import Closing
from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable
from edge_signing.limits import DEFAULT_LIMITS, Limits
from edge_signing.names import check_path, from_system, is_signature, sort_key, to_system
from edge_signing.reading import reading, unreadable

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: if the name has become a FIFO, opening it must not hang.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BundleSource(Protocol):
    """A bundle's files. A context manager: leaving it closes the source.

    Attributes:
        location: Where they come from, for messages.
    """

    location: str

    def names(self) -> list[str]:
        """Lists every file, those in `signatures/` included, sorted.

        Returns:
            Paths that each pass `names.check_path`.

        Raises:
            BundleInvalid: A link, a special file, a name that is not allowed, too many files.
            BundleUnreadable: The place cannot be read.
        """

    def size(self, name: str) -> int:
        """Returns a file's size in bytes; raises as `open`."""

    def open(self, name: str) -> BinaryIO:
        """Opens a file.

        Args:
            name: One of `names()`.

        Returns:
            A fresh seekable stream at its start, which the caller closes; it stays usable when
            the source is closed.

        Raises:
            BundleInvalid: It is, or has become, a link or a special file, or was never listed.
            BundleUnreadable: It has gone since, or cannot be read.
        """

    def has_vanished(self) -> bool:
        """Tells whether the place as a whole was removed after it was opened.

        Whoever reads meanwhile finds files missing one by one, and that is no tampering.
        """

    def close(self) -> None:
        """Closes the source; closing twice does nothing."""

    def __enter__(self) -> Self:
        """Returns the source itself."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the source."""


class ClosingSource(Closing):
    """What sources share: the context manager, and that they stay where they are."""

    def has_vanished(self) -> bool:
        """Tells whether it was removed; see `BundleSource.has_vanished`."""
        return False


class MemorySource(ClosingSource):
    """Files in memory."""

    def __init__(self, files: Mapping[str, bytes], location: str = "memory") -> None:
        """Takes the files.

        Args:
            files: Bytes by path.
            location: A name for messages.
        """
        self.location = location
        self._files = files

    def names(self) -> list[str]:
        """Lists every file; see `BundleSource.names`."""
        for name in self._files:
            check_path(name)
        return sorted(self._files, key=sort_key)

    def size(self, name: str) -> int:
        """Returns a file's size in bytes; see `BundleSource.size`."""
        return len(self._get(name))

    def open(self, name: str) -> BinaryIO:
        """Opens a file; see `BundleSource.open`."""
        return io.BytesIO(self._get(name))

    def _get(self, name: str) -> bytes:
        data = self._files.get(name)
        if data is None:
            raise BundleChanged("the file is not in the bundle", path=name)
        return data


class DirectorySource(ClosingSource):
    """Files in a folder. No link below the folder is ever followed."""

    def __init__(self, path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> None:
        """Opens the folder.

        Args:
            path: The folder; this name itself may be a link, since its owner gave it.
            limits: How many files to list at most.

        Raises:
            BundleUnreadable: There is no such folder, or it cannot be read.
        """
        self.location = os.fspath(path)
        self._limits = limits
        try:
            self._root = os.open(path, _DIRECTORY)
        except (OSError, ValueError) as error:
            raise unreadable(error, self.location) from error

    def close(self) -> None:
        """Closes the source; closing twice does nothing."""
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def has_vanished(self) -> bool:
        """Tells whether the folder was removed; see `BundleSource.has_vanished`."""
        try:
            return os.fstat(self._root).st_nlink == 0 or not Path(self.location).exists()
        except OSError:
            return False

    def names(self) -> list[str]:
        """Lists every file; see `BundleSource.names`."""
        files: list[str] = []
        folders = [""]
        # Folders count too, or a million empty ones would be walked.
        left = 2 * self._limits.files + self._limits.signature_files
        while folders:
            folder = folders.pop()
            for name, mode in self._list(folder):
                left -= 1
                if left < 0:
                    raise BundleInvalid(
                        f"has more than {self._limits.files} files", path=self.location
                    )
                if stat.S_ISDIR(mode):
                    folders.append(name)
                else:
                    _check_regular(mode, name)
                    files.append(name)
        return sorted(files, key=sort_key)

    def _list(self, folder: str) -> Iterator[tuple[str, int]]:
        descriptor = self._open(folder, _DIRECTORY | os.O_NOFOLLOW)
        try:
            with reading(folder or self.location), os.scandir(descriptor) as entries:
                for entry in entries:
                    name = from_system(entry.name)
                    name = f"{folder}/{name}" if folder else name
                    check_path(name)
                    yield name, entry.stat(follow_symlinks=False).st_mode
        finally:
            os.close(descriptor)

    def size(self, name: str) -> int:
        """Returns a file's size in bytes; see `BundleSource.size`."""
        with self.open(name) as stream:
            return os.fstat(stream.fileno()).st_size

    def open(self, name: str) -> BinaryIO:
        """Opens a file; see `BundleSource.open`."""
        descriptor = self._open(name, _FILE)
        try:
            _check_regular(os.fstat(descriptor).st_mode, name)
        except BaseException:
            os.close(descriptor)
            raise
        return open(descriptor, "rb")

    def _open(self, name: str, flags: int) -> int:
        """Opens component by component: O_NOFOLLOW guards only the last one of a path."""
        if name:
            check_path(name)
        components = to_system(name or ".").split("/")
        # Once: whoever closes the source meanwhile frees the number for somebody else's file.
        root = folder = self._root
        try:
            for component in components[:-1]:
                inner = os.open(component, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                if folder != root:
                    os.close(folder)
                folder = inner
            return os.open(components[-1], flags, dir_fd=folder)
        except OSError as error:
            raise _refused(error, name or self.location) from error
        finally:
            if folder != root:
                os.close(folder)


def open_source(path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> BundleSource:
    """Opens a bundle, whichever form it has.

    Args:
        path: A folder, or an OCI archive (an uncompressed tar).
        limits: Caps on what is listed.

    Returns:
        The source, to be used in a `with` statement.

    Raises:
        BundleUnreadable: There is nothing of that name, or it is no bundle.
        BundleInvalid: The archive breaks a rule.
    """
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError) as error:
        raise unreadable(error, os.fspath(path)) from error
    if stat.S_ISDIR(mode):
        return DirectorySource(path, limits)
    from edge_signing.oci import OciTarSource

    return OciTarSource(path, limits)


def split_names(names: list[str]) -> tuple[list[str], list[str]]:
    """Parts a source's names into the bundle's own files and those in `signatures/`."""
    return (
        [name for name in names if not is_signature(name)],
        [name for name in names if is_signature(name)],
    )


def _refused(error: OSError, name: str) -> BundleUnreadable | BundleInvalid:
    if error.errno == errno.ENOENT:
        return BundleUnreadable("the file has gone", path=name)
    # ELOOP, and ENOTDIR for O_DIRECTORY: a link. ENXIO: a socket.
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return BundleInvalid("is, or has become, a link or a special file", path=name)
    return unreadable(error, name)


def _check_regular(mode: int, name: str) -> None:
    if stat.S_ISREG(mode):
        return
    kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
    raise BundleInvalid(f"is {kind}; a bundle holds only files", path=name)
