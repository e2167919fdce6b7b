"""Checks one of our bundles with the OpenSSF Model Signing library, which knows nothing of us.

Run it in an environment of its own (python -m pip install model-signing==1.1.1 pyOpenSSL):

    python oms_conformance.py BUNDLE_FOLDER PUBLIC_KEY.pem

It exits with 0 if the library accepts the bundle, and with 1 and the library's reason otherwise.
pytest does not collect it. It imports no edge_signing: sharing code would share its mistakes.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature  # type: ignore[import-not-found]
from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # type: ignore[import-not-found]
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (  # type: ignore[import-not-found]
    Encoding,
    PublicFormat,
    load_pem_public_key,
)
from model_signing import verifying
from model_signing._signing import sign_sigstore_pb


class Ed25519Verifier(sign_sigstore_pb.Verifier):  # type: ignore[misc]  # an untyped base
    """The one thing the library lacks: it has verifiers for EC keys only."""

    def __init__(self, public_key: Ed25519PublicKey) -> None:
        """Takes the key that must have signed."""
        self._public_key = public_key

    def _verify_bundle(self, bundle: Any) -> tuple[str, bytes]:
        envelope = bundle.dsse_envelope
        pae = sign_sigstore_pb.pae(envelope.payload)
        self._public_key.verify(envelope.signatures[0].sig, pae)
        return envelope.payload_type, envelope.payload


def main(bundle: Path, public_key_file: Path) -> None:
    """Verifies the bundle; raises what the library raises."""
    public_key = load_pem_public_key(public_key_file.read_bytes())
    if not isinstance(public_key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    der = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = bundle / "signatures" / f"{sha256(der).hexdigest()}.sigstore.json"
    config = verifying.Config()
    config._verifier = Ed25519Verifier(public_key)  # the public setters build EC verifiers only
    config.verify(bundle, signature)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: oms_conformance.py BUNDLE_FOLDER PUBLIC_KEY.pem")
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (InvalidSignature, ValueError, OSError) as error:
        sys.exit(f"refused: {type(error).__name__}: {error}")
