"""A bundle's signature files: read within caps, and matched with keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from edge_signing.digest import is_sha256_hex, sha256_hex
from edge_signing.ed25519 import PublicKey
from edge_signing.envelope import Envelope, PayloadDecoder, parse_envelope
from edge_signing.errors import BundleInvalid, NotTrusted
from edge_signing.keyring import ABBREVIATED, Keyring
from edge_signing.limits import Limits
from edge_signing.names import check_signature_path
from edge_signing.reading import reading
from edge_signing.sources import BundleSource

# What an attempt costs besides hashing the payload, in bytes hashed in the same time.
_ATTEMPT_BYTES = 16 * 1024


class Signatures(NamedTuple):
    """The signature files of a bundle, all over the same payload.

    Attributes:
        payload: That payload's bytes.
        envelopes: One for each file; they share the payload.
        digests: SHA-256 by file name, to copy exactly the files that were judged.
        sizes: Bytes by file name.
    """

    payload: bytes
    envelopes: tuple[Envelope, ...]
    digests: dict[str, str]
    sizes: dict[str, int]


def read_signature(source: BundleSource, name: str, limits: Limits) -> bytes:
    """Reads a signature file.

    Args:
        source: The bundle.
        name: The file in `signatures/`.
        limits: The cap on its bytes.

    Returns:
        The bytes.

    Raises:
        BundleInvalid: It is too large.
        BundleUnreadable: It cannot be read.
    """
    with reading(name), source.open(name) as stream:
        data = stream.read(limits.signature_file_bytes + 1)
    if len(data) > limits.signature_file_bytes:
        raise BundleInvalid(f"has more than {limits.signature_file_bytes} bytes", path=name)
    return data


def parse_signature(data: bytes, name: str, decoder: PayloadDecoder | None = None) -> Envelope:
    """Parses a signature file, naming it in the error.

    Args:
        data: Its bytes.
        name: The file in `signatures/`.
        decoder: As for `parse_envelope`.

    Returns:
        The envelope.

    Raises:
        BundleInvalid: It is malformed.
    """
    try:
        return parse_envelope(data, decoder)
    except BundleInvalid as error:
        raise BundleInvalid(error.message, path=name) from error


def read_signatures(source: BundleSource, names: Collection[str], limits: Limits) -> Signatures:
    """Reads all signature files.

    Args:
        source: The bundle.
        names: The files in `signatures/`.
        limits: Caps on their number and size.

    Returns:
        Their envelopes.

    Raises:
        NotTrusted: There are none.
        BundleInvalid: Too many, too large, malformed, misnamed, or over different payloads.
        BundleUnreadable: One cannot be read.
    """
    if not names:
        raise NotTrusted(
            "the bundle is not signed", path=source.location, hint="its publisher must sign it"
        )
    check_signature_names(names, limits, source.location)
    payload: bytes | None = None
    # One copy of the payload for all: 64 files of 2 MiB would not fit everywhere.
    decoder = PayloadDecoder()
    envelopes = []
    digests = {}
    sizes = {}
    for name in names:
        data = read_signature(source, name, limits)
        sizes[name] = len(data)
        check_total(sizes, limits, source.location)
        envelope = parse_signature(data, name, decoder)
        if payload is None:
            payload = envelope.payload
        elif envelope.payload != payload:
            raise BundleInvalid(
                "the signatures are over different manifests",
                path=name,
                hint="its publisher must remove the stale ones and sign again",
            )
        envelopes.append(envelope)
        digests[name] = sha256_hex(data)
    assert payload is not None  # noqa: S101  # names is not empty
    return Signatures(payload, tuple(envelopes), digests, sizes)


def check_signature_names(names: Collection[str], limits: Limits, location: str) -> None:
    """Checks number and names of the files in `signatures/`.

    Args:
        names: The files.
        limits: The cap on their number.
        location: The bundle, for the error.

    Raises:
        BundleInvalid: Too many, or one that is not named as a signature.
    """
    if len(names) > limits.signature_files:
        raise BundleInvalid(f"has more than {limits.signature_files} signatures", path=location)
    for name in names:
        check_signature_path(name)


def check_total(sizes: Mapping[str, int], limits: Limits, location: str) -> None:
    """Checks the size of all files in `signatures/` together.

    Args:
        sizes: Bytes by file.
        limits: The cap.
        location: The bundle, for the error.

    Raises:
        BundleInvalid: They have too many bytes.
    """
    if sum(sizes.values()) > limits.signatures_bytes:
        raise BundleInvalid(
            f"has more than {limits.signatures_bytes} bytes of signatures", path=location
        )


def find_signers(
    signatures: Signatures, keyring: Keyring, limits: Limits, location: str
) -> list[PublicKey]:
    """Finds which keys of a keyring signed.

    Args:
        signatures: The signatures.
        keyring: Whose keys to try, those that count no more included: the verdict explains them.
        limits: The cap on the work.
        location: The bundle, for errors.

    Returns:
        At least one key, each once.

    Raises:
        NotTrusted: No key of the keyring signed.
        BundleInvalid: So many junk signatures that trying them all would take too long.
    """
    left = limits.signature_check_bytes
    signers: dict[str, PublicKey] = {}
    distinct = {(envelope.signature, envelope.hint): envelope for envelope in signatures.envelopes}
    for envelope in distinct.values():
        for keyid in _in_order(keyring, envelope.hint):
            left -= len(signatures.payload) + _ATTEMPT_BYTES
            if left < 0:
                raise BundleInvalid("has too many signatures by unknown keys", path=location)
            key = keyring.keys[keyid].public_key
            if envelope.is_signed_by(key):
                signers[keyid] = key
                break
    if not signers:
        raise NotTrusted(
            f"no key of the keyring signed it{_claims(signatures)}",
            path=location,
            hint="if you trust its publisher: edge-agent keys trust KEY.pub --for NAME",
        )
    return list(signers.values())


def _in_order(keyring: Keyring, hint: str) -> list[str]:
    """The hinted key first, which saves time; a wrong hint only costs some."""
    return sorted(keyring.keys, key=lambda keyid: keyid != hint)


def _claims(signatures: Signatures) -> str:
    hints = sorted({e.hint[:ABBREVIATED] for e in signatures.envelopes if is_sha256_hex(e.hint)})
    more = ", …" if len(hints) > 3 else ""
    return f" (it claims to be signed by {', '.join(hints[:3])}{more})" if hints else ""
