"""The smallest tar that an OCI archive needs, read and written without extracting.

Only plain ustar headers are understood: every extension (pax, GNU long names, sparse files, links)
is a second way to say what a name or a size is, and nothing here needs one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from edge_signing.errors import BundleInvalid, BundleUnreadable

BLOCK = 512
END = bytes(2 * BLOCK)
_RECORD = 20 * BLOCK
_OCTAL_LIMIT = 8**11


class Member(NamedTuple):
    """One entry of an archive.

    Attributes:
        name: Its name as written.
        is_folder: Whether it is a directory entry, which has no content.
        offset: Where its content begins, in bytes.
        size: The content's length in bytes.
    """

    name: str
    is_folder: bool
    offset: int
    size: int


def header(name: str, size: int) -> bytes:
    """Builds the header of a regular file that is the same on every machine and day.

    Args:
        name: At most 100 ASCII characters.
        size: Bytes of content.

    Returns:
        512 bytes: mode 0644, uid, gid and mtime 0.

    Source:
        POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar's base-256 for 8 GiB and more.
    """
    number = b"%011o\0" % size if size < _OCTAL_LIMIT else b"\x80" + size.to_bytes(11, "big")
    before = name.encode("ascii").ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
    before += number + b"%011o\0" % 0
    after = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    after = after.ljust(BLOCK - len(before) - 8, b"\0")
    checksum = b"%06o\0 " % (sum(before) + sum(after) + 8 * 0x20)
    return before + checksum + after


def padding(size: int) -> bytes:
    """Returns the zeroes that follow content of some size."""
    return bytes(-size % BLOCK)


def members(descriptor: int, location: str, at_most: int) -> Iterator[Member]:
    """Walks an archive's headers, skipping the content.

    Args:
        descriptor: The open file; its position is neither used nor moved.
        location: A name for errors.
        at_most: Refuse more entries than this.

    Yields:
        Its entries in order; every one lies wholly inside the file.

    Raises:
        BundleUnreadable: Not a tar, damaged, or truncated (also when the end marker is missing).
        BundleInvalid: An entry that is neither a regular file nor a folder, too many, or more after
            the end marker than zeroes up to the end of the record.
        OSError: The file cannot be read.
    """
    total = os.fstat(descriptor).st_size
    position = 0
    for _ in range(at_most + 1):
        block = os.pread(descriptor, BLOCK, position)
        if block == bytes(BLOCK):
            if os.pread(descriptor, BLOCK, position + BLOCK) != bytes(BLOCK):
                raise BundleUnreadable("the archive is truncated", path=location)
            _check_end(descriptor, position, total, location)
            return
        member = _parse(block, position + BLOCK, location)
        position = member.offset + member.size + len(padding(member.size))
        if position > total:
            raise BundleUnreadable("the archive is truncated", path=location)
        yield member
    raise BundleInvalid(f"the archive has more than {at_most} entries", path=location)


def _check_end(descriptor: int, position: int, total: int, location: str) -> None:
    """Nothing rides along behind the end: tar only fills up its last record of 10240 bytes."""
    end = position + len(END)
    left = total - end
    if left > -end % _RECORD or os.pread(descriptor, left, end).strip(b"\0"):
        raise BundleInvalid("the archive goes on after its end", path=location)


def _parse(block: bytes, offset: int, location: str) -> Member:
    if len(block) < BLOCK:
        raise BundleUnreadable("the archive is truncated", path=location)
    checksum = sum(block[:148]) + 8 * 0x20 + sum(block[156:])
    if block[257:262] != b"ustar" or _octal(block[148:156]) != checksum:
        raise BundleUnreadable("is neither a folder nor a tar archive", path=location)
    raw_name = block[:100].split(b"\0", 1)[0]
    name = raw_name.decode("ascii", "backslashreplace")
    kind = block[156:157]
    if kind not in (b"0", b"\0", b"5") or block[345:500].strip(b"\0"):
        raise BundleInvalid(
            "the archive has an entry that is not a plain file",
            path=name,
            hint="links, sparse files and extended headers are not accepted",
        )
    size = _number(block[124:136])
    if size is None or (kind == b"5" and size):
        raise BundleUnreadable("the archive is damaged: a size is not a number", path=location)
    return Member(name, kind == b"5", offset, size)


def _number(field: bytes) -> int | None:
    if field[0] == 0x80:  # base 256, positive
        return int.from_bytes(field[1:], "big")
    return _octal(field)


def _octal(field: bytes) -> int | None:
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        return None
    return int(digits, 8) if digits else None
