"""The one error of this room."""

from __future__ import annotations


class ProfileError(Exception):
    """A device profile can't be used: correct its file, or name another one.

    Attributes:
        message: What is wrong, one sentence without a trailing full stop.
        path: The file, or the folder, that it is about, where there is one.
        hint: What to do next, where that is known.
    """

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path is not None else self.message
