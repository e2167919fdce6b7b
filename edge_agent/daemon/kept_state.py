"""The desired state on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from edge_agent.errors import StoreError
from edge_agent.files import read_regular
from edge_agent.ownership import private_folder
from edge_agent.serving.desired import Desired
from edge_signing.durable import fsync_directory, write_durably

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES: Final = 1024 * 1024


class DesiredFile:
    """Implements `serving.reconciler.Kept` with ``desired.json`` in the state folder."""

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir
        self._file = state_dir / "desired.json"

    def read(self) -> Desired | None:
        """Returns the desired state, None where none was ever set.

        Raises:
            StoreError: It can't be read, or is damaged.
        """
        try:
            data = read_regular(self._file, _MAX_BYTES)
            return msgspec.json.decode(data, type=Desired)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"can't be read: {error.strerror}", path=str(self._file)) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(
                f"is damaged: {error}",
                path=str(self._file),
                hint="run edge-agent apply again",
            ) from error

    def write(self, desired: Desired) -> None:
        """Keeps it durably.

        Raises:
            StoreError: It can't be written; what was kept before still is.
        """
        try:
            private_folder(self._folder, 0o700)
            write_durably(self._file, msgspec.json.encode(desired), 0o600)
        except OSError as error:
            raise StoreError(f"can't be written: {error.strerror}", path=str(self._file)) from error

    def forget(self) -> None:
        """Forgets it, durably.

        Raises:
            StoreError: It can't be removed.
        """
        try:
            self._file.unlink(missing_ok=True)
            fsync_directory(self._folder)
        except OSError as error:
            raise StoreError(f"can't be removed: {error.strerror}", path=str(self._file)) from error
