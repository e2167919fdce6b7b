"""What signing and verifying both demand of a bundle's files, and how both hash them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import BinaryIO

from edge_signing.digest import hash_stream
from edge_signing.errors import BundleInvalid
from edge_signing.limits import Limits
from edge_signing.reading import reading
from edge_signing.sources import BundleSource

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in total."""


def measure(source: BundleSource, names: Collection[str], limits: Limits) -> dict[str, int]:
    """Takes the sizes of files before any is read.

    Args:
        source: The bundle.
        names: Its files outside `signatures/`.
        limits: The caps.

    Returns:
        Bytes by name.

    Raises:
        BundleInvalid: Too many files, or too many bytes together.
        BundleUnreadable: A file cannot be read.
    """
    if len(names) > limits.files:
        raise BundleInvalid(f"has more than {limits.files} files", path=source.location)
    sizes = {}
    for name in names:
        with reading(name):
            sizes[name] = source.size(name)
    if sum(sizes.values()) > limits.total_bytes:
        raise BundleInvalid(f"has more than {limits.total_bytes} bytes", path=source.location)
    return sizes


def hash_files(
    source: BundleSource, sizes: Mapping[str, int], progress: Progress | None
) -> Iterator[tuple[str, str]]:
    """Hashes files one after the other, in constant memory.

    Args:
        source: The bundle.
        sizes: Bytes by name; a file that is longer by now gets another digest than any it had.
        progress: Called as the work goes on.

    Yields:
        Name and hexadecimal SHA-256.

    Raises:
        BundleInvalid: The source refuses a file.
        BundleUnreadable: A file cannot be read.
    """
    advance = counter(sum(sizes.values()), progress)
    for name, size in sizes.items():
        with reading(name), source.open(name) as stream:
            yield name, hash_stream(stream, advance, at_most=size)


def copy_file(
    source: BundleSource,
    name: str,
    out: BinaryIO,
    at_most: int | None,
    advance: Callable[[int], None] | None = None,
) -> str:
    """Copies a file while hashing: what was written is what was hashed.

    Args:
        source: The bundle.
        name: The file.
        out: Where to write.
        at_most: As for `digest.hash_stream`.
        advance: Called with the bytes of each piece.

    Returns:
        The hexadecimal SHA-256 of the bytes written.

    Raises:
        BundleInvalid: The source refuses the file.
        BundleUnreadable: It cannot be read.
        OSError: `out` cannot be written: the disk is full. That is not the bundle's fault.
    """
    try:
        with reading(name), source.open(name) as stream:
            return hash_stream(stream, advance, at_most, lambda piece: _write(out, piece))
    except _WriteError as failure:
        raise failure.error from None


class _WriteError(Exception):
    """Carries a failure to write past the handler of failures to read."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _write(out: BinaryIO, piece: memoryview) -> None:
    try:
        out.write(piece)
    except OSError as error:
        raise _WriteError(error) from error


def counter(total: int, progress: Progress | None) -> Callable[[int], None] | None:
    """Turns a stream of amounts into calls of (done, total); None if nobody listens."""
    if progress is None:
        return None
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    return advance


def check_external_data(
    source: BundleSource, names: Collection[str], thorough: bool = False
) -> None:
    """Checks that ONNX models refer only to files of the bundle.

    Args:
        source: The bundle.
        names: Its files outside `signatures/`.
        thorough: Find any damage in the models. A publisher wants to know of it; a gateway, before
            every load of what was signed, wants the milliseconds.

    Raises:
        BundleInvalid: A tensor's data lies in a file that is not one of them, or the ONNX file is
            damaged.
        BundleUnreadable: A file cannot be read.
    """
    models = [name for name in names if name.casefold().endswith(".onnx")]
    if not models:
        return
    from edge_signing.external_data import resolve

    listed = set(names)
    for model in models:
        for location in sorted(_locations(source, model, thorough)):
            if resolve(model, location) not in listed:
                raise BundleInvalid(
                    f"refers to the external data {location!r}, which is not in the bundle",
                    path=model,
                    hint="put that file beside the model and sign again",
                )


def _locations(source: BundleSource, model: str, thorough: bool) -> set[str]:
    from edge_signing.external_data import external_files

    try:
        with reading(model), source.open(model) as stream:
            return external_files(stream, source.size(model), thorough)
    except BundleInvalid as error:
        raise BundleInvalid(error.message, path=error.path or model, hint=error.hint) from error
