"""What the system says when a bundle cannot be read, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edge_signing.errors import BundleUnreadable


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns the errors of reading a bundle into ours.

    Args:
        name: What is read, for the message.

    Yields:
        Nothing.

    Raises:
        BundleUnreadable: In place of any OSError.
    """
    try:
        yield
    except OSError as error:
        raise unreadable(error, name) from error


def unreadable(error: OSError | ValueError, path: str) -> BundleUnreadable:
    """Says why something cannot be read.

    Args:
        error: What the system said (ValueError: a NUL in a path).
        path: What was to be read.

    Returns:
        The error to raise.
    """
    if isinstance(error, FileNotFoundError):
        return BundleUnreadable("there is no such file or folder", path=path)
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BundleUnreadable(f"cannot be read: {reason}", path=path)
