"""Ed25519 keys in memory: identity, signing, verifying, and the public key's encodings."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from edge_signing.errors import KeyFileError
from edge_signing.strict_json import StrictJSONError, decode_base64, encode_base64

# SubjectPublicKeyInfo of an Ed25519 key is this, then the 32 bytes (RFC 8410 section 4).
_SPKI_PREFIX = bytes.fromhex("302a300506032b6570032100")
_PEM_BEGIN = "-----BEGIN PUBLIC KEY-----"
_PEM_END = "-----END PUBLIC KEY-----"


@dataclass(frozen=True)
class PublicKey:
    """An Ed25519 public key; equal when the 32 raw bytes are.

    Attributes:
        raw: The encoded point.

    Raises:
        KeyFileError: Not 32 bytes, or not the canonical encoding of a point of the prime-order
            group. A key of small order (all zeroes among them) verifies signatures that nobody
            made, and a key with a small-order part added is a second key for one secret.

    Source:
        RFC 8032 section 5.1; libsodium, crypto_core_ed25519_is_valid_point.
    """

    raw: bytes

    def __post_init__(self) -> None:
        from nacl.bindings import crypto_core_ed25519_is_valid_point

        if not isinstance(self.raw, bytes) or len(self.raw) != 32:
            raise KeyFileError("an Ed25519 public key has 32 bytes")
        if not crypto_core_ed25519_is_valid_point(self.raw):
            raise KeyFileError("this is no Ed25519 public key: a weak or malformed point")

    @cached_property
    def keyid(self) -> str:
        """SHA-256 of the DER SubjectPublicKeyInfo, in hexadecimal."""
        return hashlib.sha256(self.to_der()).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Tells whether this key made a signature.

        Args:
            signature: What should be 64 bytes.
            message: The bytes that should be signed.

        Returns:
            False for anything but a valid signature over exactly these bytes.

        Source:
            RFC 8032 section 5.1.7; libsodium refuses S that is not reduced, so that a signature
            cannot be changed into another one.
        """
        from nacl.bindings import crypto_sign_BYTES, crypto_sign_open
        from nacl.exceptions import BadSignatureError

        if len(signature) != crypto_sign_BYTES:
            return False
        try:
            crypto_sign_open(signature + message, self.raw)
        except BadSignatureError:
            return False
        return True

    def to_der(self) -> bytes:
        """Returns the DER SubjectPublicKeyInfo (RFC 8410 section 4)."""
        return _SPKI_PREFIX + self.raw

    def to_base64(self) -> str:
        """Returns the base64 of the DER SubjectPublicKeyInfo, as keyrings hold it."""
        return encode_base64(self.to_der())

    def to_pem(self) -> str:
        """Returns the key as PEM text (RFC 7468 section 13)."""
        return f"{_PEM_BEGIN}\n{self.to_base64()}\n{_PEM_END}\n"

    @classmethod
    def from_der(cls, der: bytes) -> PublicKey:
        """Reads a DER SubjectPublicKeyInfo.

        Args:
            der: The 44 bytes.

        Returns:
            The key.

        Raises:
            KeyFileError: It is not an Ed25519 key, or a weak one.
        """
        if not der.startswith(_SPKI_PREFIX):
            raise KeyFileError(
                "this is not an Ed25519 public key", hint="other kinds of key are not supported"
            )
        return cls(der[len(_SPKI_PREFIX) :])

    @classmethod
    def from_base64(cls, text: object) -> PublicKey:
        """Reads the base64 of a DER SubjectPublicKeyInfo, as keyrings hold it.

        Args:
            text: The base64.

        Returns:
            The key.

        Raises:
            KeyFileError: It is not canonical base64, not an Ed25519 key, or a weak one.
        """
        try:
            return cls.from_der(decode_base64(text))
        except StrictJSONError as error:
            raise KeyFileError(f"the public key {error}") from error

    @classmethod
    def from_pem(cls, pem: str | bytes) -> PublicKey:
        """Reads a PEM public key.

        Args:
            pem: The text; white space around lines does not matter.

        Returns:
            The key.

        Raises:
            KeyFileError: It is not one PEM block, not an Ed25519 key, or a weak one.

        Source:
            RFC 7468 section 13; RFC 8410 section 4.
        """
        try:
            text = pem.decode("ascii") if isinstance(pem, bytes) else pem
        except UnicodeDecodeError as error:
            raise KeyFileError("this is not a PEM public key") from error
        lines = text.split()
        words = " ".join(lines)
        if "PRIVATE KEY" in words or "edge-agent/private-key" in words:
            raise KeyFileError("this is a private key", hint="give the public key (.pub) instead")
        if not (words.startswith(_PEM_BEGIN + " ") and words.endswith(" " + _PEM_END)):
            raise KeyFileError("this is not a PEM public key")
        return cls.from_base64(words[len(_PEM_BEGIN) : -len(_PEM_END)].replace(" ", ""))


class PrivateKey:
    """An Ed25519 private key; neither its repr nor a pickle shows the secret."""

    __slots__ = ("_public", "_secret", "_seed")

    def __init__(self, seed: bytes) -> None:
        """Derives the key from its seed.

        Args:
            seed: The 32 secret bytes.

        Raises:
            KeyFileError: Not 32 bytes.

        Source:
            RFC 8032 section 5.1.5.
        """
        from nacl.bindings import crypto_sign_seed_keypair

        if len(seed) != 32:
            raise KeyFileError("an Ed25519 private key has a seed of 32 bytes")
        raw, secret = crypto_sign_seed_keypair(seed)
        self._seed = seed
        self._secret = secret
        self._public = PublicKey(raw)

    @classmethod
    def generate(cls) -> PrivateKey:
        """Makes a new key from the system's random source."""
        return cls(os.urandom(32))

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return self._public

    @property
    def seed(self) -> bytes:
        """The secret itself: only for writing it into a key file."""
        return self._seed

    def sign(self, message: bytes) -> bytes:
        """Signs a message.

        Args:
            message: The bytes.

        Returns:
            The signature, 64 bytes; the same message gives the same one.

        Source:
            RFC 8032 section 5.1.6.
        """
        from nacl.bindings import crypto_sign, crypto_sign_BYTES

        return crypto_sign(message, self._secret)[:crypto_sign_BYTES]

    def __repr__(self) -> str:
        return f"PrivateKey(<secret>, keyid={self._public.keyid})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is not pickled")
