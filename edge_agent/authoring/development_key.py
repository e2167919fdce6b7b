"""This machine's development key: for bundles that never leave it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from edge_agent import keyrings
from edge_agent.errors import ConfigError
from edge_agent.ownership import locked, private_folder

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.app import Agent
    from edge_signing.ed25519 import PrivateKey
    from edge_signing.keyring import Keyring, Rule

DEV_KEY: Final = "dev"
DEV_NAMES: Final = "local/*"
_COMMENT: Final = "development"
_LOCK_TIMEOUT_S: Final = 10.0


def development_key(agent: Agent) -> PrivateKey:
    """Returns the key; it is made, and trusted for ``local/*`` only, at the first use.

    Raises:
        edge_signing.errors.KeyFileError: The key's file can't be used.
        ConfigError: The owner has another rule for ``local/*``, or has revoked the key, or the
            keyring can't be changed.
    """
    path = agent.config.keys_dir / f"{DEV_KEY}.key"
    private_folder(agent.config.config_dir)
    private_folder(path.parent, 0o700)
    try:
        with locked(path.with_suffix(".lock"), _LOCK_TIMEOUT_S):
            return _key_in_force(agent, path)
    except TimeoutError as error:
        raise ConfigError("somebody else is making it", path=str(path)) from error


def _key_in_force(agent: Agent, path: Path) -> PrivateKey:
    from edge_signing.keys import load_private_key, save_public_key

    ring = keyrings.owners(agent.config.keyring_file)
    key = load_private_key(path) if os.path.lexists(path) else None
    if key and not os.path.lexists(path.with_suffix(".pub")):
        save_public_key(path.with_suffix(".pub"), key.public)
    rule = next((rule for rule in ring.rules if rule.pattern == DEV_NAMES), None)
    if key and rule and key.public.keyid in rule.keys:
        _refuse_revoked(ring, key)
        return key
    if rule and not _is_of_a_lost_key(ring, rule):
        raise ConfigError(
            f"the keyring has a rule of its owner for {DEV_NAMES}",
            path=str(agent.config.keyring_file),
            hint=f"sign with --key, or run: edge-agent keys untrust '{DEV_NAMES}'",
        )
    if key:
        _refuse_revoked(ring, key)
    return _trusted(agent, key or _new_key(path), path)


def _refuse_revoked(ring: Keyring, key: PrivateKey) -> None:
    entry = ring.keys.get(key.public.keyid)
    if entry and entry.revoked:
        raise ConfigError(
            "the development key is revoked",
            hint=f"sign with --key, or move {DEV_KEY}.key away for a new one to be made",
        )


def _is_of_a_lost_key(ring: Keyring, rule: Rule) -> bool:
    """Whether a rule is one that this file made, for a key that isn't there any more."""
    return len(rule.keys) == 1 and ring.keys[rule.keys[0]].comment == _COMMENT


def _new_key(path: Path) -> PrivateKey:
    from edge_signing.ed25519 import PrivateKey
    from edge_signing.keys import save_key_pair

    # The other half is of a key that was lost, or was never whole.
    path.with_suffix(".pub").unlink(missing_ok=True)
    key = PrivateKey.generate()
    save_key_pair(path, key, None)
    return key


def _trusted(agent: Agent, key: PrivateKey, path: Path) -> PrivateKey:
    keyrings.change(
        agent.config.keyring_file,
        lambda ring: ring.with_key(key.public, comment=_COMMENT).with_rule(
            DEV_NAMES, [key.public.keyid], first=False
        ),
    )
    agent.notify(f"the development key {path} is trusted for {DEV_NAMES} from now on")
    return key
