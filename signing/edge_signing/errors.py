"""The error tree of this room, named for what the caller does next."""

from __future__ import annotations


class SigningError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        message: What is wrong, as one sentence.
        path: The file, folder or name inside a bundle that it concerns.
        hint: What to do next, when that is known.
    """

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        if self.path is None:
            return printable(self.message)
        return printable(f"{self.path}: {self.message}")


class BundleUnreadable(SigningError):
    """There is no bundle to judge here: fetch it again, or correct the path."""


class BundleInvalid(SigningError):
    """The bundle breaks a rule of the format: its publisher must build it again."""


class BundleChanged(BundleInvalid):
    """Bytes differ from those that were signed: discard this copy and fetch it again."""


class NotTrusted(SigningError):
    """The keyring's answer is no: change the keyring, or get a signature that counts."""


class KeyFileError(SigningError):
    """A key cannot be used: its file's permissions, its passphrase, or its content is wrong."""


class KeyringError(SigningError):
    """The keyring is malformed, or the change asked for would make it so."""


def printable(text: str) -> str:
    """Escapes what a terminal would obey and what UTF-8 cannot encode.

    Names in error messages come from strangers; an escape sequence or a lone surrogate in one
    must not reach the terminal or break the log.

    Args:
        text: Any string.

    Returns:
        The same text with control, format and surrogate characters as backslash escapes.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii")
        for c in text
    )
