"""The keyring in force: the owner's rules, and after them the one for the demo bundle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent.errors import ConfigError
from edge_agent.files import read_regular
from edge_agent.ownership import locked, private_folder, require_ours

if TYPE_CHECKING:
    from edge_signing.keyring import Keyring

DEMO_BUNDLE: Final = Path(__file__).parent / "demo" / "bundle"
_LOCK_TIMEOUT_S: Final = 10.0
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
        data = read_regular(path, MAX_KEYRING_BYTES)
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
        ConfigError: It can't be read or written, or somebody else has been changing it for long.
        edge_signing.errors.KeyringError: The result would be no keyring, or too large for one.
    """
    from edge_signing.durable import remove_unfinished, write_durably
    from edge_signing.keyring import Keyring

    try:
        private_folder(path.parent)
        with locked(path.with_suffix(".lock"), _LOCK_TIMEOUT_S):
            remove_unfinished(path)
            data = edit(owners(path)).serialise()
            changed = Keyring.parse(data)
            write_durably(path, data, 0o644)
    except TimeoutError as error:
        raise ConfigError(
            f"somebody else has been changing it for {_LOCK_TIMEOUT_S:.0f} s", path=str(path)
        ) from error
    except OSError as error:
        raise ConfigError(f"can't be written: {error.strerror}", path=str(path)) from error
    return changed
