"""Bearer tokens: which are good, and whose they are."""

from __future__ import annotations

import hmac
import os
import re
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from edge_agent.errors import ConfigError
from edge_agent.files import read_regular
from edge_agent.server.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from pathlib import Path

MIN_LENGTH: Final = 16
_MAX_FILE_BYTES: Final = 256 * 1024
_NAME = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Source: RFC 6750, section 2.1, b64token.
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]{16,512}={0,2}")


class Tokens:
    """Tokens by what they hash to: comparing digests takes equally long for every guess.

    Args:
        digests: SHA-256 of each token, and the name of its holder.
    """

    def __init__(self, digests: tuple[tuple[bytes, str], ...] = ()) -> None:
        self._digests = digests

    def name(self, token: bytes) -> str:
        """Returns whose token it is.

        Raises:
            NotAuthenticatedError: Nobody's.
        """
        given = sha256(token).digest()
        found = ""
        for digest, name in self._digests:
            if hmac.compare_digest(digest, given):
                found = name
        if not found:
            raise NotAuthenticatedError("the token isn't known here")
        return found


def read(path: Path) -> Tokens:
    """Reads a file of tokens: ``NAME TOKEN`` a line; empty lines and those with ``#`` don't count.

    A name may have several tokens, so that one can be replaced while both are good.

    Raises:
        ConfigError: It can't be read, others can read it, or a line is wrong.
    """
    require_private(path)
    try:
        text = read_regular(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if len(text) > _MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {_MAX_FILE_BYTES} bytes", path=str(path))
    found: dict[bytes, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]) or not _TOKEN.fullmatch(words[1]):
            raise ConfigError(
                f"line {number} isn't NAME TOKEN",
                path=str(path),
                hint=f"a token has {MIN_LENGTH} to 512 letters, digits and ._~+/-",
            )
        digest = sha256(words[1]).digest()
        if found.setdefault(digest, words[0].decode()) != words[0].decode():
            raise ConfigError(f"line {number} has the token of another name", path=str(path))
    return Tokens(tuple(found.items()))


def require_private(path: Path) -> None:
    """Refuses a file with a secret that anyone but its owner can read.

    Raises:
        ConfigError: It belongs to another user, or its group or others have rights to it.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}", path=str(path)) from error
    if facts.st_uid not in (0, os.geteuid()):
        raise ConfigError("belongs to another user", path=str(path))
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise ConfigError(
            "holds a secret that others can read", path=str(path), hint=f"run: chmod 600 {path}"
        )
