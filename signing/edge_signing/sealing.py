"""A private key's seed, sealed with a passphrase."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from edge_signing.errors import KeyFileError
from edge_signing.strict_json import StrictJSONError, decode_base64, encode_base64

# libsodium's MODERATE: 0.7 s on a desktop, and 256 MiB that an attacker must spend on each guess.
OPS_LIMIT = 3
MEM_LIMIT_BYTES = 256 * 1024 * 1024
# What a file may ask for: a crafted one must not exhaust the memory of who opens it.
_MAX_OPS_LIMIT = 8
_MAX_MEM_LIMIT_BYTES = 512 * 1024 * 1024


def check_fields(document: dict[str, Any], expected: set[str]) -> None:
    """Checks that an object has exactly some fields.

    Args:
        document: The object.
        expected: The fields.

    Raises:
        StrictJSONError: One is missing, or there is another.
    """
    if set(document) != expected:
        raise StrictJSONError(f"must have exactly the fields {', '.join(sorted(expected))}")


def seal_seed(seed: bytes, passphrase: bytes) -> dict[str, Any]:
    """Seals a seed.

    Args:
        seed: 32 bytes.
        passphrase: What opens it again.

    Returns:
        The object `sealed_seed` of a private key's file.

    Raises:
        KeyFileError: The passphrase is empty.

    Source:
        libsodium, "Password hashing" (argon2id) and "Secret-key authenticated encryption".
    """
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


def open_seed(name: str, sealed: Any, passphrase: Callable[[], bytes] | None) -> bytes:
    """Opens a sealed seed.

    Args:
        name: The file, for errors.
        sealed: What should be its object `sealed_seed`.
        passphrase: Asks for the passphrase.

    Returns:
        The seed.

    Raises:
        KeyFileError: No passphrase, or the wrong one.
        StrictJSONError: The object is malformed.
    """
    from nacl.bindings import crypto_secretbox_open
    from nacl.exceptions import CryptoError

    if not isinstance(sealed, dict):
        raise StrictJSONError("has a sealed_seed that is not an object")
    check_fields(sealed, {"kdf", "ops_limit", "mem_limit_bytes", "salt", "nonce", "ciphertext"})
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
