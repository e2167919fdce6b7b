"""This machine's development key: for bundles that never leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent import keyrings
from edge_agent.ownership import private_folder

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_signing.ed25519 import PrivateKey

DEV_KEY: Final = "dev"
DEV_NAMES: Final = "local/*"


def development_key(agent: Agent) -> PrivateKey:
    """Returns the key; it is made, and trusted for ``local/*`` only, at the first use.

    Raises:
        edge_signing.errors.KeyFileError: The key's file can't be used.
        ConfigError: The keyring can't be changed.
    """
    from edge_signing.ed25519 import PrivateKey
    from edge_signing.keys import load_private_key, save_key_pair

    path = agent.config.keys_dir / f"{DEV_KEY}.key"
    if path.exists():
        key = load_private_key(path)
    else:
        private_folder(path.parent, 0o700)
        path.with_suffix(".pub").unlink(
            missing_ok=True
        )  # of a key that is lost, or was never whole
        key = PrivateKey.generate()
        save_key_pair(path, key, None)
    ring = keyrings.owners(agent.config.keyring_file)
    # Where the key was lost, its rule is replaced by the new key's.
    if not any(key.public.keyid in rule.keys for rule in ring.rules):
        keyrings.change(
            agent.config.keyring_file,
            lambda ring: ring.with_key(key.public, comment="development").with_rule(
                DEV_NAMES, [key.public.keyid], first=False
            ),
        )
        agent.notify(f"the development key {path} is trusted for {DEV_NAMES} from now on")
    return key
