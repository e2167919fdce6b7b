"""`edge-agent keys`: make signing keys, and say which keys are trusted with what."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edge_agent import clock, keyrings
from edge_agent import config as configuration
from edge_agent.cli import key_files, options, output
from edge_agent.errors import ConfigError
from edge_agent.ownership import private_folder

if TYPE_CHECKING:
    from edge_signing.ed25519 import PublicKey
    from edge_signing.keyring import Keyring, Rule

keys = typer.Typer(
    help="Make signing keys, and say which keys are trusted.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys.command()
def generate(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the key, or a path ending in .key.")
    ],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Ask for a passphrase that seals the private key.")
    ] = False,
    passphrase_file: key_files.PassphraseFile = None,
    json: options.JsonOption = False,
) -> None:
    """Make an Ed25519 key pair: NAME.key (private, mode 0600) and NAME.pub."""
    from edge_signing.ed25519 import PrivateKey
    from edge_signing.keys import save_key_pair

    config = configuration.load()
    path = key_files.private_path(config, name)
    if path.suffix != ".key":
        raise ConfigError("the path of a private key must end in .key", path=str(path))
    passphrase = None
    if passphrase_file is not None:
        passphrase = key_files.read_passphrase(passphrase_file)
    elif encrypt:
        passphrase = key_files.ask_passphrase(str(path), twice=True)
    key = PrivateKey.generate()
    if path.parent == config.keys_dir:
        private_folder(config.config_dir)
        private_folder(path.parent, 0o700)
    public = save_key_pair(path, key, passphrase)
    if json:
        output.document(
            {
                "schema": "edge-agent/keys-generate/v1",
                "keyid": key.public.keyid,
                "private": str(path),
                "public": str(public),
            }
        )
        return
    output.line(f"private key  {path}" + ("  (sealed)" if passphrase else ""))
    output.line(f"public key   {public}")
    output.line(f"keyid        {key.public.keyid}")


@keys.command()
def trust(
    public: Annotated[
        list[str], typer.Argument(metavar="KEY", help="Public keys: .pub files, or names.")
    ],
    bundles: Annotated[
        str, typer.Option("--for", metavar="PATTERN", help="Bundle names; * stops at a /.")
    ],
    threshold: Annotated[
        int, typer.Option(min=1, help="How many of these keys must have signed.")
    ] = 1,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="No new installs by these keys after it; or never."),
    ] = None,
    comment: Annotated[str | None, typer.Option(help="Whose keys these are.")] = None,
    first: Annotated[
        bool, typer.Option("--first", help="Put the rule before all others, not after them.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Trust keys with the bundles of some names.

    The first rule whose pattern matches a bundle's name decides about it. A rule for the same
    pattern is replaced. What is known of a key stays unless it is said anew.
    """
    config = configuration.load()
    found = [key_files.public_key(config, one) for one in public]
    until = _date(expires) if expires not in (None, "never") else None
    before = keyrings.owners(config.keyring_file)

    def edit(ring: Keyring) -> Keyring:
        for name, key in zip(public, found, strict=True):
            known = ring.keys.get(key.keyid)
            own = comment or (None if known and known.comment else Path(name).stem)
            ring = ring.with_key(key, expires=until, comment=own)
            ring = ring.without_expiry(key.keyid) if expires == "never" else ring
        return ring.with_rule(bundles, [key.keyid for key in found], threshold, first=first)

    _refuse_revoked(before, found)
    ring = keyrings.change(config.keyring_file, edit)
    _have_reloaded(config.admin_socket)
    _warn(before, ring, bundles, [key.keyid for key in found])
    if json:
        output.document(
            {
                "schema": "edge-agent/keys-trust/v1",
                "bundles": bundles,
                "keys": [key.keyid for key in found],
                "threshold": threshold,
            }
        )
        return
    keyids = ", ".join(key.keyid[:16] for key in found)
    output.line(
        f"bundles named {bundles} must be signed by {threshold} of these keys: {keyids}"
        f"  ({config.keyring_file})"
    )


@keys.command()
def untrust(
    bundles: Annotated[
        str, typer.Argument(metavar="PATTERN", help="The pattern of a rule, as keys list shows it.")
    ],
    json: options.JsonOption = False,
) -> None:
    """Remove a rule; keys and other rules stay."""
    config = configuration.load()
    keyrings.change(config.keyring_file, lambda ring: ring.without_rule(bundles))
    _have_reloaded(config.admin_socket)
    if json:
        output.document({"schema": "edge-agent/keys-untrust/v1", "bundles": bundles})
        return
    output.line(f"{bundles}: no rule of its own any more  ({config.keyring_file})")


@keys.command()
def revoke(
    key: Annotated[
        str,
        typer.Argument(metavar="KEY", help="A keyid (8 digits or more), a .pub file or a name."),
    ],
    json: options.JsonOption = False,
) -> None:
    """Revoke a key: nothing that needs its signature loads any more."""
    config = configuration.load()
    public = _known_key(config, key)
    keyrings.change(config.keyring_file, lambda ring: ring.revoke(public, clock.now()))
    _have_reloaded(config.admin_socket)
    if json:
        output.document({"schema": "edge-agent/keys-revoke/v1", "keyid": public.keyid})
        return
    output.line(f"revoked {public.keyid}  ({config.keyring_file})")


@keys.command("list")
def list_keys(json: options.JsonOption = False) -> None:
    """List keys and rules in force, in the order in which the rules decide."""
    config = configuration.load()
    ring = keyrings.in_force(config.keyring_file)
    shipped = keyrings.shipped()
    if json:
        output.document(_as_json(ring))
        return
    output.table(
        "Keys",
        ["keyid", "comment", "expires", "revoked"],
        [
            [
                keyid[:16],
                entry.comment or ("shipped" if keyid in shipped.keys else ""),
                _shown(entry.expires),
                _shown(entry.revoked),
            ]
            for keyid, entry in ring.keys.items()
        ],
    )
    output.table(
        "Rules (the first that matches decides)",
        ["bundles", "signatures needed", "keys"],
        [_rule_row(rule) for rule in ring.rules],
    )


def _rule_row(rule: Rule) -> list[str]:
    if not rule.keys:
        return [rule.pattern, "refused", ""]
    return [
        rule.pattern,
        f"{rule.threshold} of {len(rule.keys)}",
        " ".join(keyid[:16] for keyid in rule.keys),
    ]


def _as_json(ring: Keyring) -> dict[str, Any]:
    from edge_signing.keyring_file import format_time

    return {
        "schema": "edge-agent/keys-list/v1",
        "keys": [
            {
                "keyid": keyid,
                "comment": entry.comment,
                "expires": format_time(entry.expires) if entry.expires else None,
                "revoked": format_time(entry.revoked) if entry.revoked else None,
            }
            for keyid, entry in ring.keys.items()
        ],
        "rules": [
            {"bundles": rule.pattern, "keys": list(rule.keys), "threshold": rule.threshold}
            for rule in ring.rules
        ],
    }


def _shown(moment: datetime | None) -> str:
    return moment.date().isoformat() if moment else ""


def _date(text: str | None) -> datetime:
    try:
        moment = datetime.fromisoformat(text or "")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--expires takes a date such as 2027-12-31, not {text!r}") from error


def _refuse_revoked(ring: Keyring, keys: list[PublicKey]) -> None:
    for key in keys:
        entry = ring.keys.get(key.keyid)
        if entry and entry.revoked:
            raise ConfigError(
                f"the key {key.keyid[:16]} is revoked, and counts for nothing any more",
                hint="make a new key",
            )


def _warn(before: Keyring, after: Keyring, bundles: str, keyids: list[str]) -> None:
    """Tells of what the owner may not have meant."""
    old = next((rule for rule in before.rules if rule.pattern == bundles), None)
    if old and old != next(rule for rule in after.rules if rule.pattern == bundles):
        output.notice(f"the rule for {bundles!r} that was there is replaced")
    hidden = _hiding_rule(after, bundles)
    if hidden is not None:
        output.notice(f"the earlier rule {hidden!r} decides first for such names; see --first")
    for keyid in keyids:
        expires = after.keys[keyid].expires
        if expires and expires <= clock.now():
            output.notice(f"the key {keyid[:16]} has expired: it installs nothing new")


def _hiding_rule(ring: Keyring, pattern: str) -> str | None:
    """Returns an earlier rule that matches whatever this pattern matches, if one is seen."""
    from edge_signing.patterns import matches

    for rule in ring.rules:
        if rule.pattern == pattern:
            return None
        if matches(rule.pattern, pattern):
            return rule.pattern
    return None


def _known_key(config: configuration.AgentConfig, key: str) -> PublicKey:
    """Finds a key by its keyid among those in force, or in a file."""
    if os.path.isfile(key_files.public_path(config, key)):
        return key_files.public_key(config, key)
    ring = keyrings.in_force(config.keyring_file)
    return ring.keys[ring.find(key.lower())].public_key


def _have_reloaded(socket: Path) -> None:
    """Has the daemon, if one runs, go by the keyring as it is now."""
    from edge_agent.cli import admin_socket  # brings an HTTP client

    admin_socket.have_reloaded(socket)
