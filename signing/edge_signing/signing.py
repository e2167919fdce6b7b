"""What a signature is over, and signing a bundle that is one file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from edge_signing.contents import Progress, check_external_data, hash_files, measure
from edge_signing.digest import sha256_hex
from edge_signing.ed25519 import PrivateKey
from edge_signing.envelope import seal
from edge_signing.errors import BundleChanged, BundleInvalid
from edge_signing.limits import DEFAULT_LIMITS, Limits
from edge_signing.manifest import Resource, build_statement, bundle_digest, parse_statement
from edge_signing.names import SIGNATURES, check_bundle_name, check_distinct, check_name, sort_key
from edge_signing.reading import reading
from edge_signing.signatures import (
    check_signature_names,
    check_total,
    parse_signature,
    read_signature,
)
from edge_signing.sources import BundleSource, ClosingSource, MemorySource, split_names


class SignResult(NamedTuple):
    """What signing made.

    Attributes:
        digest: The bundle's digest, `sha256:…`.
        keyid: The signer.
        file: The signature file's path.
    """

    digest: str
    keyid: str
    file: str


class Prepared(NamedTuple):
    """A signature that is not stored yet.

    Attributes:
        statement: What it is over.
        keyid: The signer.
        file: Its path in the bundle.
        sealed: Its bytes.
        stale: The signatures over other files, which give way to it.
    """

    statement: bytes
    keyid: str
    file: str
    sealed: bytes
    stale: list[str]


def state(
    source: BundleSource,
    name: str,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Returns the statement over a bundle's files: what every signature of it is over.

    Args:
        source: The bundle; its signatures are left out.
        name: The bundle's name, as in its `model.yaml`.
        progress: Called with the bytes hashed and the bytes in total.
        limits: The caps that verification will apply.

    Raises:
        BundleInvalid: Verification would refuse this bundle.
        BundleUnreadable: A file in it cannot be read.
    """
    check_bundle_name(name)
    files, _ = split_names(source.names())
    # The names first: they cost nothing, and hashing may take minutes.
    for file in files:
        check_name(file)
    check_distinct(files)
    sizes = measure(source, files, limits)
    check_external_data(source, files, thorough=True)
    return build_statement(name, [Resource(*pair) for pair in hash_files(source, sizes, progress)])


def prepare(
    source: BundleSource,
    name: str,
    private_key: PrivateKey,
    replace: bool,
    progress: Progress | None,
    limits: Limits,
) -> Prepared:
    """Makes a signature, and finds those that can't stay beside it.

    Args:
        source: The bundle.
        name: Its name.
        private_key: The signer's key.
        replace: Let signatures over other files give way, instead of refusing.
        progress: Called with the bytes hashed and the bytes in total.
        limits: The caps that verification will apply.

    Raises:
        BundleChanged: There are signatures over other files, and `replace` is False.
        BundleInvalid: Verification would refuse this bundle.
        BundleUnreadable: A file in it cannot be read.
    """
    _, signature_names = split_names(source.names())
    check_signature_names(signature_names, limits, source.location)
    statement = state(source, name, progress, limits)
    stale = [one for one in signature_names if not _signs(source, one, statement, limits)]
    if stale and not replace:
        raise BundleChanged(
            "the bundle, or its name, has changed since it was signed",
            path=os.path.join(source.location, stale[0]),  # noqa: PTH118
            hint="sign with --replace to remove the signatures over the old content",
        )
    sizes = {one: source.size(one) for one in signature_names if one not in stale}
    keyid = private_key.public.keyid
    file = f"{SIGNATURES}/{keyid}.sigstore.json"
    if len({*sizes, file}) > limits.signature_files:
        raise BundleInvalid(
            f"has {limits.signature_files} signatures already", path=source.location
        )
    sealed = seal(statement, private_key)
    if len(sealed) > limits.signature_file_bytes:
        raise BundleInvalid(
            "the list of its files is too long to be signed",
            path=source.location,
            hint="pack many small files into fewer large ones, or give them shorter names",
        )
    check_total({**sizes, file: len(sealed)}, limits, source.location)
    return Prepared(statement, keyid, file, sealed, stale)


def sign_archive(
    path: str | os.PathLike[str],
    name: str,
    private_key: PrivateKey,
    replace: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> SignResult:
    """Signs all files of a bundle in an OCI archive; for arguments see `sign_directory`.

    The archive is written anew beside itself and takes its own place by one rename, with the mode
    that it had, and the owner where the system lets us give it back. Of two signers at once the
    second waits, and adds its signature to what the first has made.

    Raises:
        BundleUnreadable: There is no such archive, or it is damaged.
        BundleChanged: There are signatures over other files, and `replace` is False; or a file
            isn't the one that the archive lists, or the archive was replaced or changed meanwhile.
        BundleInvalid: Verification would refuse this bundle.
        OSError: The archive cannot be written; it is as it was.
    """
    from edge_signing.oci import OciTarSource
    from edge_signing.oci_manifest import Layer
    from edge_signing.oci_writing import write_layers

    check_bundle_name(name)
    with _alone(path) as before, OciTarSource(path, limits) as source:
        made = prepare(source, name, private_key, replace, progress, limits)
        for file, digest in parse_statement(made.statement).digests.items():
            if digest != source.listed[file]:
                raise BundleChanged(
                    "the file differs from its digest in the archive",
                    path=file,
                    hint="fetch or build the archive again; this copy is damaged",
                )

        def finish(out: BinaryIO) -> None:
            with suppress(OSError):  # only root may give a file to somebody else
                os.fchown(out.fileno(), before.st_uid, before.st_gid)
            if not _is_at(path, before):
                raise BundleChanged(
                    "was replaced while it was signed", path=source.location, hint="sign it again"
                )

        # The bytes written are held to the digests that were signed, however they change meanwhile.
        with _Signed(source, made) as signed:
            digests = {**source.listed, made.file: sha256_hex(made.sealed)}
            layers = [Layer(file, digests[file], signed.size(file)) for file in signed.names()]
            write_layers(signed, layers, path, mode=before.st_mode & 0o777, finish=finish)
    return SignResult(bundle_digest(made.statement), made.keyid, made.file)


@contextmanager
def _alone(path: str | os.PathLike[str]) -> Iterator[os.stat_result]:
    """Waits until nobody else signs an archive; yields what it is then.

    Raises:
        BundleUnreadable: There is none, or it cannot be read.
    """
    while True:
        with reading(os.fspath(path)):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # a file system without locks: `finish` still sees the other
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = os.fstat(descriptor)
            if _is_at(path, found):  # else the signer before us has replaced it
                yield found
                return
        finally:
            os.close(descriptor)


def _is_at(path: str | os.PathLike[str], found: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(Path(path).stat(), found)
    return False


class _Signed(ClosingSource):
    """A bundle as it is with its new signature."""

    def __init__(self, source: BundleSource, made: Prepared) -> None:
        self.location = source.location
        self._source = source
        self._new = MemorySource({made.file: made.sealed}, source.location)
        self._stale: Collection[str] = made.stale
        self._file = made.file

    def names(self) -> list[str]:
        kept = {one for one in self._source.names() if one not in self._stale}
        return sorted({*kept, self._file}, key=sort_key)

    def size(self, name: str) -> int:
        return self._of(name).size(name)

    def open(self, name: str) -> BinaryIO:
        return self._of(name).open(name)

    def _of(self, name: str) -> BundleSource:
        return self._new if name == self._file else self._source


def _signs(source: BundleSource, name: str, statement: bytes, limits: Limits) -> bool:
    data = read_signature(source, name, limits)
    try:
        return parse_signature(data, name).payload == statement
    except BundleInvalid:
        return False  # damaged: as useless as a stale one
