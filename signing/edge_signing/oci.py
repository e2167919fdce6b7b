"""The OCI archive of a bundle: an image layout in an uncompressed tar, read in place."""

from __future__ import annotations

import io
import os
import stat
from typing import Any, BinaryIO

from edge_signing.digest import is_sha256_hex, sha256_hex
from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable
from edge_signing.limits import DEFAULT_LIMITS, MAX_MANIFEST_BYTES, Limits
from edge_signing.oci_manifest import (
    BLOBS,
    EMPTY_CONFIG_DIGEST,
    INDEX_TYPE,
    MANIFEST_TYPE,
    check_kind,
    parse_descriptor,
    parse_oci_manifest,
)
from edge_signing.reading import reading, unreadable
from edge_signing.sources import ClosingSource
from edge_signing.strict_json import StrictJSONError, parse_object
from edge_signing.tar import Member, members

_FOLDERS = frozenset({"blobs", "blobs/", "blobs/sha256", "blobs/sha256/"})
_MAX_INDEX_BYTES = 64 * 1024


class OciTarSource(ClosingSource):
    """Files in an OCI archive, read in place and never extracted.

    Attributes:
        location: The archive's path.
        listed: The SHA-256 that its manifest gives each file; nobody has compared them yet.
    """

    def __init__(self, path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> None:
        """Opens the archive and reads its index and manifest.

        Args:
            path: An uncompressed tar.
            limits: How many files it may have.

        Raises:
            BundleUnreadable: Missing, no tar, damaged or truncated.
            BundleInvalid: Any entry but `oci-layout`, `index.json` and `blobs/sha256/<digest>`;
                an entry twice, a link or an extension; not exactly one manifest; a blob that it
                does not list; sizes that do not agree; whatever `parse_oci_manifest` refuses.
        """
        self.location = os.fspath(path)
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise unreadable(error, self.location) from error
        try:
            self._layers = self._read_layers(limits)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the source; closing twice does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def names(self) -> list[str]:
        """Lists every file; see `BundleSource.names`."""
        return list(self._layers)

    def size(self, name: str) -> int:
        """Returns a file's size in bytes; see `BundleSource.size`."""
        return self._member(name).size

    def open(self, name: str) -> BinaryIO:
        """Opens a file; see `BundleSource.open`."""
        member = self._member(name)
        # A duplicate: a number that was closed may come back as somebody else's file.
        with reading(name):
            return io.BufferedReader(_Window(os.dup(self._file), member.offset, member.size))

    def _member(self, name: str) -> Member:
        member = self._layers.get(name)
        if member is None:
            raise BundleChanged("the file is not in the bundle", path=name)
        return member

    def _read_layers(self, limits: Limits) -> dict[str, Member]:
        with reading(self.location):
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise BundleUnreadable("is neither a folder nor a file", path=self.location)
            entries = self._entries(limits)
            self._check_layout(entries)
            digest, manifest = self._read_manifest(entries)
        layers = parse_oci_manifest(manifest, limits)
        self.listed = {one.name: one.digest_hex for one in layers}
        _check_blobs(entries, {digest, EMPTY_CONFIG_DIGEST, *(one.digest_hex for one in layers)})
        return {one.name: _blob(entries, one.digest_hex, one.size) for one in layers}

    def _entries(self, limits: Limits) -> dict[str, Member]:
        entries: dict[str, Member] = {}
        # Besides one blob a file: oci-layout, index.json, manifest, config, two folders.
        at_most = limits.files + limits.signature_files + 6
        for member in members(self._file, self.location, at_most):
            if member.name in entries:
                raise BundleInvalid("the archive has an entry twice", path=member.name)
            if not _is_expected(member):
                raise BundleInvalid(
                    "the archive has an entry that does not belong there", path=member.name
                )
            entries[member.name] = member
        return entries

    def _check_layout(self, entries: dict[str, Member]) -> None:
        layout = self._read_json(entries.get("oci-layout"), "oci-layout")
        if layout.get("imageLayoutVersion") != "1.0.0":
            raise BundleInvalid("oci-layout is not of version 1.0.0", path=self.location)

    def _read_manifest(self, entries: dict[str, Member]) -> tuple[str, bytes]:
        index = self._read_json(entries.get("index.json"), "index.json")
        check_kind(index, INDEX_TYPE, "index.json")
        manifests = index.get("manifests")
        if not isinstance(manifests, list) or len(manifests) != 1:
            raise BundleInvalid("index.json does not list exactly one manifest", path=self.location)
        digest, size = parse_descriptor(manifests[0], MANIFEST_TYPE, "index.json")
        member = _blob(entries, digest, size)
        data = self._read(member, MAX_MANIFEST_BYTES)
        if sha256_hex(data) != digest:
            raise BundleChanged("the OCI manifest differs from its digest", path=self.location)
        return digest, data

    def _read_json(self, member: Member | None, name: str) -> dict[str, Any]:
        if member is None:
            raise BundleUnreadable(f"the archive has no {name}", path=self.location)
        try:
            return parse_object(self._read(member, _MAX_INDEX_BYTES), _MAX_INDEX_BYTES, 1000)
        except StrictJSONError as error:
            raise BundleInvalid(f"{name} {error}", path=self.location) from error

    def _read(self, member: Member, at_most: int) -> bytes:
        if member.size > at_most:
            raise BundleInvalid(f"has more than {at_most} bytes", path=member.name)
        return os.pread(self._file, member.size, member.offset)


class _Window(io.RawIOBase):
    """A read-only part of a file, with a position of its own."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor = descriptor
        self._offset = offset
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        left = max(0, self._size - self._position)
        count = os.preadv(self._descriptor, [view[:left]], self._offset + self._position)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def _blob(entries: dict[str, Member], digest_hex: str, size: int) -> Member:
    member = entries.get(BLOBS + digest_hex)
    if member is None:
        raise BundleInvalid("the archive lacks a blob that it lists", path=BLOBS + digest_hex)
    if member.size != size:
        raise BundleInvalid(
            f"the archive has {member.size} bytes for a blob of {size}", path=member.name
        )
    return member


def _check_blobs(entries: dict[str, Member], listed: set[str]) -> None:
    for name in entries:
        if name.startswith(BLOBS) and name != BLOBS and name.removeprefix(BLOBS) not in listed:
            raise BundleInvalid("the archive has a blob that nothing refers to", path=name)


def _is_expected(member: Member) -> bool:
    if member.is_folder:
        return member.name in _FOLDERS
    if member.name in ("oci-layout", "index.json"):
        return True
    return member.name.startswith(BLOBS) and is_sha256_hex(member.name.removeprefix(BLOBS))
