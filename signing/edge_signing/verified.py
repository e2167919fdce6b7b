"""A bundle that passed: its bytes are checked once more on the way out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from edge_signing.closing import Closing
from edge_signing.contents import Progress, copy_file, counter
from edge_signing.digest import sha256_hex
from edge_signing.durable import fsync_directory
from edge_signing.errors import BundleChanged, BundleInvalid
from edge_signing.manifest import Manifest, bundle_digest
from edge_signing.names import to_system
from edge_signing.reading import reading
from edge_signing.signatures import Signatures
from edge_signing.sources import BundleSource
from edge_signing.trust import Verdict


class VerifiedBundle(Closing):
    """What `bundle.verify` returns. A context manager: leaving it closes the source.

    Attributes:
        name: The bundle's name, as signed.
        digest: The bundle's digest, `sha256:…`.
        manifest: The signed manifest.
        verdict: Why it is trusted.
        statement: The signed bytes of the manifest.
        location: Where it lies.
    """

    def __init__(
        self,
        source: BundleSource,
        manifest: Manifest,
        signatures: Signatures,
        verdict: Verdict,
        sizes: Mapping[str, int],
    ) -> None:
        """Only `bundle.verify` makes one.

        Args:
            source: The bundle's files.
            manifest: The signed manifest.
            signatures: The signature files.
            verdict: The verdict.
            sizes: Bytes of each file, as they were verified.
        """
        self.name = manifest.name
        self.digest = bundle_digest(signatures.payload)
        self.manifest = manifest
        self.verdict = verdict
        self.statement = signatures.payload
        self.location = source.location
        self._source = source
        self._signatures = signatures
        self._sizes = sizes

    def names(self) -> list[str]:
        """Lists the signed files."""
        return list(self.manifest.digests)

    def size(self, name: str) -> int:
        """Returns the size that a file had when it was verified, in bytes.

        Args:
            name: One of `names()`.

        Returns:
            Its bytes.

        Raises:
            BundleInvalid: The bundle has no such file.
        """
        self._signed_digest(name)
        return self._sizes[name]

    def read(self, name: str, max_bytes: int) -> bytes:
        """Reads a whole file.

        Args:
            name: One of `names()`.
            max_bytes: Refuse a larger file.

        Returns:
            Its bytes: these very bytes were hashed, and match what was signed.

        Raises:
            BundleInvalid: The bundle has no such file, or it is larger.
            BundleChanged: The file has changed since it was verified.
            BundleUnreadable: It cannot be read.
        """
        signed = self._signed_digest(name)
        size = self._sizes[name]
        if size > max_bytes:
            raise BundleInvalid(f"has {size} bytes; at most {max_bytes} are allowed", path=name)
        with reading(name), self._source.open(name) as stream:
            data = stream.read(size + 1)
        if sha256_hex(data) != signed:
            raise _changed(name)
        return data

    def copy_to(self, directory: str | os.PathLike[str], progress: Progress | None = None) -> None:
        """Copies every file, signatures included, hashing the bytes that are written.

        Args:
            directory: The new folder: absent, or empty. Folders get mode 0700, files 0600, and all
                are on the disk when this returns; the caller then renames it into place.
            progress: Called with the bytes copied and the bytes in total, signatures left out.

        Raises:
            BundleChanged: A file has changed since it was verified. The folder is incomplete, and
                the caller removes it, as after any error.
            BundleUnreadable: A file cannot be read.
            OSError: The folder is not empty, the disk is full.
        """
        root = Path(directory)
        _make_empty_folder(root)
        advance = counter(sum(self._sizes.values()), progress)
        folders = {root}
        for name, signed, size in self._all_files():
            target = root / to_system(name)
            _make_folders(root, to_system(name), folders)
            with _create(target) as out:
                heard = advance if name in self._sizes else None
                copied = copy_file(self._source, name, out, size, heard)
                if copied != signed:
                    raise _changed(name)
                out.flush()
                os.fsync(out.fileno())
        # The deepest first; last the folder that holds the new one's own name.
        for folder in [*sorted(folders, reverse=True), root.absolute().parent]:
            fsync_directory(folder)

    def pack(self, out_path: str | os.PathLike[str], progress: Progress | None = None) -> str:
        """Packs every file, signatures included, into an OCI archive: the very bytes verified.

        Args:
            out_path: The archive, written durably.
            progress: Called with the bytes packed and the bytes in total; the content of equal
                files is packed once.

        Returns:
            The OCI manifest's digest, `sha256:…`.

        Raises:
            BundleChanged: A file has changed since it was verified.
            BundleUnreadable: A file cannot be read.
            OSError: The archive cannot be written. After any error nothing is left behind.
        """
        from edge_signing.oci_manifest import Layer
        from edge_signing.oci_writing import write_layers

        layers = [Layer(*file) for file in self._all_files()]
        total = sum({layer.digest_hex: layer.size for layer in layers}.values())
        return write_layers(self._source, layers, out_path, counter(total, progress))

    def close(self) -> None:
        """Closes the source; closing twice does nothing."""
        self._source.close()

    def _all_files(self) -> Iterator[tuple[str, str, int]]:
        for name, digest in self.manifest.digests.items():
            yield name, digest, self._sizes[name]
        for name, digest in self._signatures.digests.items():
            yield name, digest, self._signatures.sizes[name]

    def _signed_digest(self, name: str) -> str:
        digest = self.manifest.digests.get(name)
        if digest is None:
            raise BundleInvalid("the bundle has no such file", path=name)
        return digest


def _changed(name: str) -> BundleChanged:
    return BundleChanged(
        "the file has changed since it was verified", path=name, hint="fetch the bundle again"
    )


def _make_empty_folder(root: Path) -> None:
    try:
        root.mkdir(0o700)
    except FileExistsError:
        if any(root.iterdir()):
            raise
        root.chmod(0o700)


def _make_folders(root: Path, name: str, made: set[Path]) -> None:
    folder = root
    for component in name.split("/")[:-1]:
        folder /= component
        if folder not in made:
            folder.mkdir(0o700)
            made.add(folder)


def _create(target: Path) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(target, flags, 0o600), "wb")
