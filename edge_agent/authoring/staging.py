"""Writing a folder so that it appears under its name whole, or not at all.

It is written beside its place, in a folder that is locked while its writer lives: what a crash has
left can be told from what is being written, and the next writer for the same place removes it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from edge_agent.errors import BadInputError
from edge_signing.durable import fsync_directory, give_name, write_durably

_FOLDER_MODE: Final = 0o755
# A name must not pass NAME_MAX (255 bytes), however long that of the place is.
_KEPT: Final = 40
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Source: renameat2(2).
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


def require_free(place: Path, hint: str = "choose another with --out") -> None:
    """Refuses a place that something has already.

    Raises:
        BadInputError: It has.
    """
    if os.path.lexists(place):
        raise BadInputError("exists already", path=str(place), hint=hint)


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Yields an empty folder beside a place; it is gone when the block ends, whatever happens.

    What an earlier run for the same place has left is removed, if its process has gone.

    Args:
        out: The place; the folders above it are made, and removed again where they stay empty.

    Raises:
        OSError: Something can't be written; the error names the place.
    """
    missing = [one for one in out.parents if not one.exists()]
    try:
        with _locked(out) as staging:
            yield staging
    except OSError as error:
        if _is_elsewhere(error, out):
            raise
        raise OSError(error.errno, f"can't be written: {error.strerror}", str(out)) from error
    finally:
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()


def scratch() -> AbstractContextManager[Path]:
    """Returns a private folder for a while; what a killed process has left there is swept."""
    return staged(Path(gettempdir()) / "edge-agent-scratch")


@contextmanager
def _locked(out: Path) -> Iterator[Path]:
    """Yields a new folder beside a place, locked until it is removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _sweep(out)
    staging, descriptor = _create_locked(out)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(descriptor)


def _create_locked(out: Path) -> tuple[Path, int]:
    while True:
        staging = out.with_name(f".{out.name[:_KEPT]}.{os.urandom(8).hex()}.staging")
        staging.mkdir(0o700)  # it gets its mode with its name
        with suppress(FileNotFoundError):  # somebody swept it before it was locked
            descriptor = os.open(staging, _FOLDER)
            with suppress(OSError):  # a file system without locks: then nobody else gets one either
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if staging.exists():
                return staging, descriptor
            os.close(descriptor)


def _is_elsewhere(error: OSError, out: Path) -> bool:
    """Whether an error names a file that has nothing to do with the place."""
    if not isinstance(error.filename, str):
        return False
    path, place = Path(error.filename).absolute(), out.absolute()
    beside = str(path).startswith(str(place.with_name(f".{place.name[:_KEPT]}.")))
    return not beside and path != place and path not in place.parents


@contextmanager
def written(out: Path, files: Mapping[str, bytes]) -> Iterator[Path]:
    """Writes files beside their place, and renames them there when the block ends well.

    Args:
        out: The folder that they shall be in; there is none yet.
        files: Bytes by path in it.

    Yields:
        Where they are meanwhile.
    """
    with staged(out) as staging:
        content = staging / "content"
        content.mkdir()
        for file, data in files.items():
            put(content, file, data)
        yield content
        place_folder(content, out)


def put(root: Path, name: str, data: bytes) -> None:
    """Writes a file of a staged folder, durably and with the same permissions everywhere."""
    make_folders(root, name)
    write_durably(root / name, data)


def make_folders(root: Path, name: str) -> None:
    """Makes the folders that a file needs."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)


def place_folder(made: Path, out: Path, *, replace: bool = False) -> None:
    """Gives a finished folder its name.

    At every moment a whole one has that name, where the system can exchange two names in one step;
    elsewhere there is a moment without any.

    Args:
        made: The folder, on the same file system. Afterwards what it replaced may have its name.
        out: Its name.
        replace: Whether it takes the place of a folder that has this name.

    Raises:
        BadInputError: Something has the name, and isn't to be replaced.
    """
    folders = [made, *(one for one in made.rglob("*") if one.is_dir())]
    for folder in folders:
        folder.chmod(_FOLDER_MODE)  # whatever the umask was
        fsync_directory(folder)
    if not os.path.lexists(out):
        _rename(made, out)
    elif not replace:
        raise _taken(out)
    elif not _exchanged(made, out):
        earlier = out.rename(made.with_name("replaced"))
        try:
            made.rename(out)
        except OSError:
            earlier.rename(out)
            raise
    fsync_directory(out.parent)


def place_file(made: Path, out: Path, *, replace: bool = False) -> None:
    """Gives a finished file its name; for arguments and errors see `place_folder`."""
    if replace:
        made.replace(out)
    else:
        try:
            give_name(made, out)
        except FileExistsError as error:
            raise _taken(out) from error
    fsync_directory(out.parent)


def _rename(made: Path, out: Path) -> None:
    """Renames a folder; rename(2) replaces no file, and no folder that holds anything."""
    try:
        made.rename(out)
    except OSError as error:
        if os.path.lexists(out):
            raise _taken(out) from error
        raise


def _taken(out: Path) -> BadInputError:
    return BadInputError(
        "has appeared meanwhile", path=str(out), hint="look what it is, and try again"
    )


def _exchanged(one: Path, other: Path) -> bool:
    """Exchanges two names; False where the C library, the system or the file system can't."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    done: int = call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    return done == 0


def _sweep(out: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(out.name[:_KEPT])}\.[0-9a-f]{{16}}\.staging", re.DOTALL)
    for one in out.parent.iterdir():
        if pattern.fullmatch(one.name):
            _remove_if_dead(one)


def _remove_if_dead(staging: Path) -> None:
    with suppress(OSError):  # its writer lives, it is another user's, or it has gone
        descriptor = os.open(staging, _FOLDER)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(staging, ignore_errors=True)
        finally:
            os.close(descriptor)
