"""Keys, and the files that hold them.

A private key's file is JSON; its seed is plain, or sealed with a passphrase (argon2id and
XSalsa20-Poly1305, as libsodium's `crypto_pwhash` and `crypto_secretbox`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from edge_signing.durable import create_durably, remove_unfinished, write_durably
from edge_signing.ed25519 import PrivateKey, PublicKey
from edge_signing.errors import KeyFileError
from edge_signing.limits import MAX_KEY_FILE_BYTES
from edge_signing.sealing import check_fields, open_seed, seal_seed
from edge_signing.strict_json import (
    StrictJSONError,
    canonical,
    decode_base64,
    encode_base64,
    parse_object,
)

__all__ = [
    "PrivateKey",
    "PublicKey",
    "load_private_key",
    "load_public_key",
    "save_key_pair",
    "save_private_key",
    "save_public_key",
]

SCHEMA = "edge-agent/private-key/v1"
_MAX_TOKENS = 64


def save_private_key(
    path: str | os.PathLike[str], key: PrivateKey, passphrase: bytes | None
) -> None:
    """Writes a private key into a new file of mode 0600.

    Args:
        path: The file, which must not exist yet.
        key: The key.
        passphrase: Seals the seed; None writes it plain.

    Raises:
        KeyFileError: The file exists already, or the passphrase is empty.
        OSError: The folder is missing or not writable, the disk is full; nothing is left behind.
    """
    _create(Path(path), _private_document(key, passphrase), 0o600)


def save_key_pair(
    private_path: str | os.PathLike[str], key: PrivateKey, passphrase: bytes | None
) -> Path:
    """Writes both halves of a key into new files, the public one beside the private one.

    The public half comes first: a crash leaves at most that, which is no secret and signs nothing.
    It is never removed by a later run, since it may be the key of somebody else that was copied
    here; that run says what to do.

    Args:
        private_path: NAME.key, which must not exist yet; nor may NAME.pub.
        key: The key.
        passphrase: As for `save_private_key`.

    Returns:
        The path of NAME.pub.

    Raises:
        KeyFileError: One of the files exists already, or the passphrase is empty.
        OSError: As for `save_private_key`; nothing is left behind.
    """
    private = Path(private_path)
    public = private.with_name(private.name.removesuffix(".key") + ".pub")
    for path in (private, public):
        remove_unfinished(path)
    if os.path.lexists(private):
        raise _exists(private)
    if os.path.lexists(public):
        raise KeyFileError(
            "the file exists already, without a private key beside it; it is never overwritten",
            path=str(public),
            hint="choose another name; or, if making this key was interrupted, "
            f"run: rm {_quote(str(public))}",
        )
    document = _private_document(key, passphrase)
    _create(public, key.public.to_pem().encode("ascii"), 0o644)
    try:
        _create(private, document, 0o600)
    except BaseException:
        public.unlink(missing_ok=True)
        raise
    return public


def load_private_key(
    path: str | os.PathLike[str], passphrase: Callable[[], bytes] | None = None
) -> PrivateKey:
    """Reads a private key's file.

    Args:
        path: The file.
        passphrase: Called only if the seed is sealed.

    Returns:
        The key.

    Raises:
        KeyFileError: Missing, a link or no regular file, too large, corrupt, sealed and no or the
            wrong passphrase, or plain while others can read it or another user owns it.
    """
    name = os.fspath(path)
    data, status = _read(name)
    try:
        document = parse_object(data, MAX_KEY_FILE_BYTES, _MAX_TOKENS)
        if document.get("schema") != SCHEMA:
            raise StrictJSONError(f"is not of the schema {SCHEMA}")
        if "seed" in document:
            _check_private(name, status)
            check_fields(document, {"schema", "public_key", "seed"})
            key = PrivateKey(decode_base64(document["seed"]))
        else:
            check_fields(document, {"schema", "public_key", "sealed_seed"})
            key = PrivateKey(open_seed(name, document["sealed_seed"], passphrase))
    except StrictJSONError as error:
        raise KeyFileError(f"this private key's file {error}", path=name) from error
    if document["public_key"] != key.public.to_base64():
        raise KeyFileError("the public key in this file is not that of its seed", path=name)
    return key


def save_public_key(path: str | os.PathLike[str], key: PublicKey) -> None:
    """Writes a public key as PEM, for everybody to read.

    Args:
        path: The file; an existing one is replaced.
        key: The key.

    Raises:
        OSError: The folder is missing or not writable, or the disk is full.
    """
    write_durably(path, key.to_pem().encode("ascii"), 0o644)


def load_public_key(path: str | os.PathLike[str]) -> PublicKey:
    """Reads a public key's PEM file.

    Args:
        path: The file.

    Returns:
        The key.

    Raises:
        KeyFileError: Missing, a link or no regular file, too large, or not a public key.
    """
    name = os.fspath(path)
    data, _ = _read(name)
    try:
        return PublicKey.from_pem(data)
    except KeyFileError as error:
        raise KeyFileError(error.message, path=name, hint=error.hint) from error


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        create_durably(path, data, mode)
    except FileExistsError as error:
        raise _exists(path) from error


def _exists(path: Path) -> KeyFileError:
    hint = "choose another name, or move the old key away"
    with suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and not status.st_size:
            hint = f"it is empty, as a crash may leave it; run: rm {_quote(str(path))}"
    return KeyFileError(
        "the file exists already; a key is never overwritten", path=str(path), hint=hint
    )


def _private_document(key: PrivateKey, passphrase: bytes | None) -> bytes:
    document: dict[str, Any] = {"schema": SCHEMA, "public_key": key.public.to_base64()}
    if passphrase is None:
        document["seed"] = encode_base64(key.seed)
    else:
        document["sealed_seed"] = seal_seed(key.seed, passphrase)
    return canonical(document) + b"\n"


def _read(name: str) -> tuple[bytes, os.stat_result]:
    # O_NONBLOCK: opening a FIFO must not hang. The checks are on the open file, not on its name.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags)
        with open(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError("a key's file must be a regular file", path=name)
            data = stream.read(MAX_KEY_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise KeyFileError(
                "a key's file must not be a symbolic link", path=name, hint="give the file itself"
            ) from error
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise KeyFileError(f"the key's file cannot be read: {reason}", path=name) from error
    if len(data) > MAX_KEY_FILE_BYTES:
        raise KeyFileError(f"a key's file has at most {MAX_KEY_FILE_BYTES} bytes", path=name)
    return data, status


def _check_private(name: str, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise KeyFileError(
            "this unencrypted private key belongs to another user",
            path=name,
            hint=f"run: chown {os.geteuid()} {_quote(name)}",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyFileError(
            "this unencrypted private key can be read by others",
            path=name,
            hint=f"run: chmod 600 {_quote(name)}",
        )


def _quote(name: str) -> str:
    import shlex

    return shlex.quote(name)
