"""Keys, and the files that hold them.

A private key's file is JSON; its seed is plain, or sealed with a passphrase (argon2id and
XSalsa20-Poly1305, as libsodium's `crypto_pwhash` and `crypto_secretbox`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_signing.durable import fsync_directory, write_durably
from edge_signing.ed25519 import PrivateKey, PublicKey
from edge_signing.errors import KeyFileError
from edge_signing.limits import MAX_KEY_FILE_BYTES
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
    "save_private_key",
    "save_public_key",
]

SCHEMA = "edge-agent/private-key/v1"
_MAX_TOKENS = 64

# libsodium's MODERATE: 0.7 s on a desktop, and 256 MiB that an attacker must spend on each guess.
OPS_LIMIT = 3
MEM_LIMIT_BYTES = 256 * 1024 * 1024
# What a file may ask for: a crafted one must not exhaust the memory of who opens it.
_MAX_OPS_LIMIT = 8
_MAX_MEM_LIMIT_BYTES = 512 * 1024 * 1024


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

    Source:
        libsodium, "Password hashing" (argon2id) and "Secret-key authenticated encryption".
    """
    document: dict[str, Any] = {"schema": SCHEMA, "public_key": key.public.to_base64()}
    if passphrase is None:
        document["seed"] = encode_base64(key.seed)
    else:
        document["sealed_seed"] = _seal(key.seed, passphrase)
    name = os.fspath(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600)
    except FileExistsError as error:
        raise KeyFileError(
            "the file exists already; a key is never overwritten",
            path=name,
            hint="choose another name, or move the old key away",
        ) from error
    try:
        with open(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), 0o600)  # a strict umask must not lock the owner out
            stream.write(canonical(document) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        Path(name).unlink()
        raise
    fsync_directory(Path(name).parent)


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
            _check_fields(document, {"schema", "public_key", "seed"})
            key = PrivateKey(decode_base64(document["seed"]))
        else:
            _check_fields(document, {"schema", "public_key", "sealed_seed"})
            key = PrivateKey(_open_sealed(name, document["sealed_seed"], passphrase))
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
            hint=f"run: chown {_quoted_user()} {_quote(name)}",
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise KeyFileError(
            "this unencrypted private key can be read by others",
            path=name,
            hint=f"run: chmod 600 {_quote(name)}",
        )


def _quoted_user() -> str:
    return str(os.geteuid())


def _quote(name: str) -> str:
    import shlex

    return shlex.quote(name)


def _check_fields(document: dict[str, Any], expected: set[str]) -> None:
    if set(document) != expected:
        raise StrictJSONError(f"must have exactly the fields {', '.join(sorted(expected))}")


def _seal(seed: bytes, passphrase: bytes) -> dict[str, Any]:
    from nacl.bindings import crypto_secretbox

    if not passphrase:
        raise KeyFileError("the passphrase is empty")
    salt = os.urandom(16)
    nonce = os.urandom(24)
    box_key = _derive(passphrase, salt, OPS_LIMIT, MEM_LIMIT_BYTES)
    return {
        "kdf": "argon2id",
        "ops_limit": OPS_LIMIT,
        "mem_limit_bytes": MEM_LIMIT_BYTES,
        "salt": encode_base64(salt),
        "nonce": encode_base64(nonce),
        "ciphertext": encode_base64(crypto_secretbox(seed, nonce, box_key)),
    }


def _open_sealed(name: str, sealed: Any, passphrase: Callable[[], bytes] | None) -> bytes:
    from nacl.bindings import crypto_secretbox_open
    from nacl.exceptions import CryptoError

    if not isinstance(sealed, dict):
        raise StrictJSONError("has a sealed_seed that is not an object")
    _check_fields(sealed, {"kdf", "ops_limit", "mem_limit_bytes", "salt", "nonce", "ciphertext"})
    salt, nonce = decode_base64(sealed["salt"]), decode_base64(sealed["nonce"])
    ciphertext = decode_base64(sealed["ciphertext"])
    if sealed["kdf"] != "argon2id" or (len(salt), len(nonce), len(ciphertext)) != (16, 24, 48):
        raise StrictJSONError("has a sealed_seed of an unknown kind")
    ops = _within("ops_limit", sealed["ops_limit"], 1, _MAX_OPS_LIMIT)
    memory = _within("mem_limit_bytes", sealed["mem_limit_bytes"], 8192, _MAX_MEM_LIMIT_BYTES)
    if passphrase is None:
        raise KeyFileError("this private key needs its passphrase", path=name)
    try:
        return crypto_secretbox_open(ciphertext, nonce, _derive(passphrase(), salt, ops, memory))
    except CryptoError as error:
        raise KeyFileError("the passphrase is wrong", path=name, hint="try again") from error


def _within(field: str, value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:  # bool is an int, but not one here
        raise StrictJSONError(f"has {field} outside {low} to {high}")
    return value


def _derive(passphrase: bytes, salt: bytes, ops_limit: int, mem_limit_bytes: int) -> bytes:
    from nacl.bindings import crypto_pwhash_alg, crypto_pwhash_ALG_ARGON2ID13

    return crypto_pwhash_alg(
        32, passphrase, salt, ops_limit, mem_limit_bytes, crypto_pwhash_ALG_ARGON2ID13
    )
