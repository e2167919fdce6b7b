"""Where keys lie, and how a passphrase is asked for: shared by `keys` and `bundle`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from edge_agent.cli import bars
from edge_agent.errors import ConfigError
from edge_signing.errors import printable

if TYPE_CHECKING:
    from edge_agent.config import AgentConfig
    from edge_signing.ed25519 import PrivateKey, PublicKey

_MAX_PASSPHRASE_BYTES: Final = 4096

PassphraseFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Read the passphrase from the first line of a file."),
]


def private_path(config: AgentConfig, name: str) -> Path:
    """Returns where a private key lies: a path as it is, a bare name among the owner's keys.

    Raises:
        ConfigError: The name is empty or would leave the folder of keys.
    """
    if "/" in name or name.endswith(".key"):
        return Path(name)
    if not name or name.startswith("."):
        raise ConfigError(f"{name!r} is not the name of a key")
    return config.keys_dir / f"{name}.key"


def public_path(config: AgentConfig, name: str) -> Path:
    """Returns where a public key lies, by the same rule."""
    if "/" in name or name.endswith(".pub"):
        return Path(name)
    return config.keys_dir / f"{name}.pub"


def public_key(config: AgentConfig, name: str) -> PublicKey:
    """Reads a public key by its path or its name.

    Raises:
        edge_signing.errors.KeyFileError: It is missing or isn't one.
    """
    from edge_signing.keys import load_public_key

    return load_public_key(public_path(config, name))


def private_key(config: AgentConfig, name: str, passphrase_file: Path | None) -> PrivateKey:
    """Reads a private key by its path or its name, asking for its passphrase where it has one.

    Raises:
        edge_signing.errors.KeyFileError: It can't be used.
        ConfigError: It is sealed, and there is no terminal to ask on.
    """
    from edge_signing.keys import load_private_key

    path = private_path(config, name)

    def passphrase() -> bytes:
        if passphrase_file is not None:
            return read_passphrase(passphrase_file)
        return ask_passphrase(str(path), twice=False)

    return load_private_key(path, passphrase)


def read_passphrase(path: Path) -> bytes:
    """Returns the first line of a file.

    Raises:
        ConfigError: It can't be read, or is empty or too long.
    """
    try:
        with open(path, "rb") as stream:
            line = stream.read(_MAX_PASSPHRASE_BYTES + 1).split(b"\n")[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if not line or len(line) > _MAX_PASSPHRASE_BYTES:
        raise ConfigError("the first line holds no passphrase of sensible length", path=str(path))
    return line


def ask_passphrase(what: str, *, twice: bool) -> bytes:
    """Asks on the terminal.

    Raises:
        ConfigError: There is no terminal.
    """
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{what} needs a passphrase and there is no terminal to ask on",
            hint="use --passphrase-file FILE",
        )
    try:
        with bars.tidy_interrupt():
            text: str = typer.prompt(
                f"Passphrase for {printable(what)}",
                hide_input=True,
                confirmation_prompt=twice,
                err=True,
            )
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except UnicodeDecodeError as error:
        raise ConfigError("the passphrase is not UTF-8 text") from error
    return text.encode("utf-8", "surrogateescape")
