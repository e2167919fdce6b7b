"""Which files `infer` was given, and their bytes."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_agent.errors import BadInputError


def sources(arguments: tuple[str, ...]) -> Iterator[str]:
    """Yields files: folders give the images in them, patterns what they match, sorted."""
    for argument in arguments:
        if argument == "-" or os.path.isfile(argument):
            yield argument
        elif os.path.isdir(argument):
            yield from _images_in(argument) or [argument]
        elif _is_pattern(argument):
            from glob import glob

            yield from sorted(glob(argument, recursive=True)) or [argument]  # noqa: PTH207
        else:
            yield argument


def read(source: str, max_bytes: int, begun: bytes = b"") -> bytes:
    """Reads a file or standard input up to a limit, and one byte more where there is more.

    Args:
        source: A file's name, or ``-``.
        max_bytes: The limit.
        begun: What was read of it before; standard input can't be read again.

    Raises:
        BadInputError: It can't be read.
    """
    try:
        if source == "-":
            return begun + sys.stdin.buffer.read(max_bytes + 1 - len(begun))
        with open(source, "rb") as stream:
            return stream.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(source, error) from error


def read_whole(source: str, max_bytes: int, begun: bytes = b"") -> bytes:
    """Reads a whole file or standard input, as `read` does.

    Raises:
        BadInputError: It can't be read, or is larger than the limit.
    """
    data = read(source, max_bytes, begun)
    if len(data) > max_bytes:
        from edge_agent.errors import BadInputError

        raise BadInputError(
            f"is larger than {max_bytes >> 20} MiB",
            path=source,
            hint="max_image_mib in config.toml sets this limit for images",
        )
    return data


def _images_in(folder: str) -> list[str]:
    from pathlib import Path

    from edge_agent.image_files import IMAGE_ENDINGS

    try:
        found = sorted(Path(folder).iterdir())
    except OSError:
        return []  # reading it will say why
    return [str(p) for p in found if p.suffix.lower() in IMAGE_ENDINGS and os.path.isfile(p)]


def _is_pattern(argument: str) -> bool:
    return any(mark in argument for mark in "*?[")


def _unreadable(source: str, error: OSError | ValueError) -> BadInputError:
    from edge_agent.errors import BadInputError, ImageError

    if isinstance(error, IsADirectoryError):
        readable = os.access(source, os.R_OK)
        reason = "is a folder without images" if readable else "can't be read: Permission denied"
        return ImageError(reason, path=source)
    if isinstance(error, FileNotFoundError) and _is_pattern(source):
        return BadInputError("no file matches", path=source)
    reason = getattr(error, "strerror", None) or str(error)
    return BadInputError(f"can't be read: {reason}", path=source)
