"""Signing a bundle, and verifying one: the two verbs of this room."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from datetime import datetime
from pathlib import Path

from edge_signing.contents import Progress, check_external_data, hash_files, measure
from edge_signing.durable import fsync_directory, sweep, write_durably
from edge_signing.ed25519 import PrivateKey
from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable, NotTrusted
from edge_signing.keyring import Keyring
from edge_signing.limits import DEFAULT_LIMITS, Limits
from edge_signing.manifest import (
    Manifest,
    bundle_digest,
    parse_statement,
)
from edge_signing.names import SIGNATURES, check_bundle_name
from edge_signing.signatures import (
    find_signers,
    read_signatures,
)
from edge_signing.signing import SignResult, prepare, sign_archive
from edge_signing.sources import BundleSource, DirectorySource, split_names
from edge_signing.trust import Purpose, judge
from edge_signing.verified import VerifiedBundle

__all__ = ["SignResult", "VerifiedBundle", "sign_archive", "sign_directory", "verify"]


# What `write_durably` may leave of a signature file if the process is killed.
_UNFINISHED = re.compile(r"\.[0-9a-f]{40}\.[0-9a-f]{16}\.tmp")


def sign_directory(
    path: str | os.PathLike[str],
    name: str,
    private_key: PrivateKey,
    replace: bool = False,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> SignResult:
    """Signs all files of a folder; another key's signature over the same files stays.

    Args:
        path: The bundle's folder.
        name: The bundle's name, as in its `model.yaml`.
        private_key: The signer's key.
        replace: Remove signatures over other files than there are now, instead of refusing.
        progress: Called with the bytes hashed and the bytes in total.
        limits: The caps that verification will apply.

    Returns:
        Digest, keyid and the file written.

    Raises:
        BundleUnreadable: There is no such folder, or a file in it cannot be read.
        BundleChanged: There are signatures over other files, and `replace` is False.
        BundleInvalid: Verification would refuse this bundle.
        OSError: The signature cannot be written.

    Source:
        model_signing 1.1.1 (all files but `ignore_paths`); DSSE 1.0; Sigstore bundle v0.3.
    """
    check_bundle_name(name)
    _sweep(Path(path))
    with DirectorySource(path, limits) as source:
        made = prepare(source, name, private_key, replace, progress, limits)
    _store(Path(path), made.file, made.sealed, made.stale)
    return SignResult(bundle_digest(made.statement), made.keyid, str(Path(path, made.file)))


def verify(
    source: BundleSource,
    keyring: Keyring,
    now: datetime,
    purpose: Purpose,
    progress: Progress | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> VerifiedBundle:
    """Verifies a bundle: who signed, whether they may, and every byte.

    The order matters. Nothing signed is parsed before a key of the keyring has verified it, and
    nothing is hashed before the verdict is yes, so that a stranger's bundle costs little.

    Args:
        source: The bundle; the result closes it.
        keyring: Whom the owner of this device trusts.
        now: The time, with time zone.
        purpose: A new install, or loading what is installed.
        progress: Called with the bytes hashed and the bytes in total.
        limits: Caps that hold before anything is believed.

    Returns:
        The verified bundle, which checks again what is read from it.

    Raises:
        NotTrusted: Not signed, or the verdict is no; the message is the verdict's reason.
        BundleChanged: A file differs from what was signed.
        BundleInvalid: The bundle breaks another rule of the format.
        BundleUnreadable: It cannot be read, or was removed meanwhile.

    Source:
        DSSE protocol 1.0 (verify, then parse the same bytes); in-toto Statement v1;
        model_signing 1.1.1, verifying.Config.verify.
    """
    try:
        return _verify(source, keyring, now, purpose, progress, limits)
    except (BundleInvalid, NotTrusted) as error:
        if source.has_vanished():
            raise BundleUnreadable("was removed while it was read", path=source.location) from error
        raise


def _verify(
    source: BundleSource,
    keyring: Keyring,
    now: datetime,
    purpose: Purpose,
    progress: Progress | None,
    limits: Limits,
) -> VerifiedBundle:
    files, signature_names = split_names(source.names())
    signatures = read_signatures(source, signature_names, limits)
    signers = find_signers(signatures, keyring, limits, source.location)
    manifest = parse_statement(signatures.payload)
    verdict = judge(keyring, manifest.name, signers, now, purpose)
    if not verdict.trusted:
        raise NotTrusted(
            verdict.reason,
            path=source.location,
            hint="edge-agent keys list shows the rules in the order in which they decide",
        )
    _check_listing(files, manifest)
    sizes = measure(source, files, limits)
    for name, digest in hash_files(source, sizes, progress):
        if digest != manifest.digests[name]:
            raise BundleChanged(
                f"the file differs from what was signed (in {source.location})",
                path=name,
                hint="fetch the bundle again; if it was changed on purpose, sign it again",
            )
    check_external_data(source, files)
    return VerifiedBundle(source, manifest, signatures, verdict, sizes)


def _check_listing(files: Collection[str], manifest: Manifest) -> None:
    listed, present = set(manifest.digests), set(files)
    if missing := listed - present:
        raise BundleInvalid("the file is in the signed manifest but missing", path=min(missing))
    if unlisted := present - listed:
        raise BundleInvalid(
            "the file is not in the signed manifest", path=min(unlisted), hint="remove it"
        )


def _sweep(root: Path) -> None:
    """Removes what a crash left in `signatures/`; a link there is not followed, but refused."""
    folder = root / SIGNATURES
    if not folder.is_symlink():
        sweep(folder, _UNFINISHED)


def _store(root: Path, relative: str, data: bytes, stale: list[str]) -> None:
    """Puts a signature in the place of stale ones.

    At no moment do signatures lie there that contradict each other: the new one takes over the name
    of the last stale one, and then its own.
    """
    last = relative if relative in stale or not stale else stale[-1]
    for name in stale:
        if name != last:
            (root / name).unlink()
    _write_signature(root, root / last, data)
    if last != relative:
        (root / last).replace(root / relative)
        fsync_directory(root / SIGNATURES)


def _write_signature(root: Path, target: Path, data: bytes) -> None:
    try:
        target.parent.mkdir()
    except FileExistsError:
        pass
    else:
        fsync_directory(root)
    try:
        # Beside the bundle: what a crash leaves in it would make it invalid.
        write_durably(target, data, staging=root.resolve().parent)
    except OSError:
        # Another file system, or a folder that only its owner may write to.
        write_durably(target, data)
