"""Writing a folder so that it appears under its name whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edge_agent.errors import BadInputError
from edge_signing.durable import fsync_directory, write_durably

_FOLDER_MODE: Final = 0o755
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
        out: The place; the folders above it are made.

    Raises:
        OSError: Something can't be written; the error names the place.
    """
    _sweep(out)
    staging = out.with_name(f".{out.name}.{os.getpid()}.staging")
    try:
        staging.mkdir(parents=True)
        yield staging
    except OSError as error:
        raise OSError(error.errno, f"can't be written: {error.strerror}", str(out)) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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


def place_folder(made: Path, out: Path) -> None:
    """Gives a finished folder its name, in the place of a folder that has it.

    At every moment a whole one has that name, where the system can exchange two names in one step;
    elsewhere there is a moment without any.

    Args:
        made: The folder, on the same file system. Afterwards what it replaced may have its name.
        out: Its name.
    """
    folders = [made, *(one for one in made.rglob("*") if one.is_dir())]
    for folder in folders:
        folder.chmod(_FOLDER_MODE)  # whatever the umask was
        fsync_directory(folder)
    if not os.path.lexists(out):
        made.rename(out)
    elif not _exchanged(made, out):
        out.rename(made.with_name("replaced"))
        made.rename(out)
    fsync_directory(out.parent)


def place_file(made: Path, out: Path) -> None:
    """Gives a finished file its name, in the place of a file that has it."""
    made.replace(out)
    fsync_directory(out.parent)


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
    if not out.parent.is_dir():
        return
    for one in out.parent.iterdir():
        start, _, rest = one.name.rpartition(f".{out.name}.")
        pid = rest.removesuffix(".staging")
        if not start and rest.endswith(".staging") and pid.isdigit() and not _is_running(pid):
            shutil.rmtree(one, ignore_errors=True)


def _is_running(pid: str) -> bool:
    return os.path.exists(f"/proc/{pid}")
