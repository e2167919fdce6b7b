"""Signs the demo bundle with a fresh key and puts that key's public half into the package.

The private half exists only while this runs. Run it whenever a file of the bundle changed:

    .venv/bin/python scripts/sign_demo.py
"""

from __future__ import annotations

import shutil

from edge_agent import keyrings, model_yaml
from edge_signing.bundle import sign_directory
from edge_signing.durable import write_durably
from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring


def main() -> None:
    """Replaces the demo's signature and its keyring."""
    bundle = keyrings.DEMO_BUNDLE
    described = model_yaml.parse((bundle / "model.yaml").read_bytes())
    key = PrivateKey.generate()
    shutil.rmtree(bundle / "signatures", ignore_errors=True)
    signed = sign_directory(bundle, described.name, key)
    ring = Keyring().with_key(key.public, comment="demo bundle of edge-agent")
    ring = ring.with_rule(described.name, [key.public.keyid])
    write_durably(keyrings.DEMO_KEYRING, ring.serialise())
    print(f"{described.name} {described.version} {signed.digest} by {signed.keyid}")


if __name__ == "__main__":
    main()
