"""The keyring in force: the owner's rules, and after them the one for the demo bundle."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent.errors import ConfigError
from edge_agent.ownership import require_ours

if TYPE_CHECKING:
    from edge_signing.keyring import Keyring

DEMO_BUNDLE: Final = Path(__file__).parent / "demo" / "bundle"
DEMO_KEYRING: Final = Path(__file__).parent / "demo" / "keyring.json"


def owners(path: Path) -> Keyring:
    """Returns the owner's keyring, an empty one where there is no file.

    Raises:
        ConfigError: The file can't be read, or others can change it.
        edge_signing.errors.KeyringError: The file is malformed.
    """
    from edge_signing.errors import KeyringError
    from edge_signing.keyring import Keyring
    from edge_signing.limits import MAX_KEYRING_BYTES

    require_ours(path.parent)
    require_ours(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_KEYRING_BYTES + 1)
    except FileNotFoundError:
        return Keyring()
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    try:
        return Keyring.parse(data)
    except KeyringError as error:
        place = f"{error.path}: " if error.path else ""
        raise KeyringError(place + error.message, path=str(path), hint=error.hint) from error


def shipped() -> Keyring:
    """Returns the keyring in the package: the demo key, for the demo bundle only."""
    from edge_signing.keyring import Keyring

    return Keyring.parse(DEMO_KEYRING.read_bytes())


def in_force(path: Path) -> Keyring:
    """Returns the owner's keyring with the shipped demo rule after it."""
    from edge_signing.keyring import merge

    return merge(owners(path), shipped())


def change(path: Path, edit: Callable[[Keyring], Keyring]) -> Keyring:
    """Changes the owner's keyring, one writer at a time, durably.

    Raises:
        ConfigError: It can't be read or written, or somebody else is changing it.
    """
    from edge_signing.durable import remove_unfinished, write_durably

    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_unfinished(path)
            changed = edit(owners(path))
            write_durably(path, changed.serialise(), 0o644)
        finally:
            os.close(lock)
    except BlockingIOError as error:
        raise ConfigError("somebody else is changing it", path=str(path)) from error
    except OSError as error:
        raise ConfigError(f"can't be written: {error.strerror}", path=str(path)) from error
    return changed
