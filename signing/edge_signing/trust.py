"""Verdicts: values and a clock go in, yes or no with its reason comes out. Nothing is read."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from edge_signing.ed25519 import PublicKey
from edge_signing.keyring import ABBREVIATED, KeyEntry, Keyring, Rule
from edge_signing.keyring_file import format_time
from edge_signing.patterns import matches


class Purpose(Enum):
    """What the verdict is for.

    A gateway must come up again after a power cut although a key expired in the meantime; a key
    that was revoked must stop even that.
    """

    INSTALL = "install"
    LOAD = "load"


class Verdict(NamedTuple):
    """The answer.

    Attributes:
        trusted: Yes or no.
        reason: Why, as one sentence that says what to change.
        rule: The rule that decided; None if none matches.
        signers: The keyids that counted.
    """

    trusted: bool
    reason: str
    rule: Rule | None
    signers: tuple[str, ...]


def judge(
    keyring: Keyring,
    name: str,
    signers: Collection[PublicKey],
    now: datetime,
    purpose: Purpose,
) -> Verdict:
    """Judges a bundle by its name and by who signed it.

    Args:
        keyring: Whom the owner of this device trusts.
        name: The bundle's name, from the signed manifest.
        signers: The keys whose signatures over the manifest were verified.
        now: The time, with time zone; the caller guards it against a clock that jumped.
        purpose: A new install, or loading what is installed.

    Returns:
        The verdict of the first rule that matches.

    Raises:
        ValueError: `now` lacks a time zone.

    Source:
        TUF 1.0.34, 4.3 and 5.3.4 (thresholds count distinct keys).
    """
    if now.tzinfo is None:
        raise ValueError("now needs a time zone")
    rule = next((rule for rule in keyring.rules if matches(rule.pattern, name)), None)
    if rule is None:
        return Verdict(False, f"no rule of the keyring matches bundle name '{name}'", None, ())
    if not rule.keys:
        reason = f"the first rule that matches '{name}', '{rule.pattern}', trusts no key"
        return Verdict(False, reason, rule, ())
    signed = {signer.raw for signer in signers}
    counted: dict[bytes, str] = {}
    remarks: list[str] = []
    for keyid in rule.keys:
        entry = keyring.keys[keyid]
        if entry.public_key.raw not in signed:
            continue
        if remark := _disqualified(keyid, entry, now, purpose):
            remarks.append(remark)
        else:
            counted.setdefault(entry.public_key.raw, keyid)
    remarks += _strangers(keyring, rule, signers)
    trusted = len(counted) >= rule.threshold
    reason = _reason(name, rule, tuple(counted.values()), [] if trusted else remarks, keyring)
    return Verdict(trusted, reason, rule, tuple(counted.values()))


def describe_key(keyid: str, entry: KeyEntry | None) -> str:
    """Names a key in a message.

    Args:
        keyid: The keyid.
        entry: What the keyring knows about it.

    Returns:
        The abbreviated keyid, and its comment if it has one.
    """
    comment = f" ({entry.comment})" if entry is not None and entry.comment else ""
    return f"{keyid[:ABBREVIATED]}{comment}"


def _disqualified(keyid: str, entry: KeyEntry, now: datetime, purpose: Purpose) -> str | None:
    key = describe_key(keyid, entry)
    if entry.revoked is not None:
        return f"key {key} was revoked on {format_time(entry.revoked)}"
    if purpose is Purpose.INSTALL and entry.expires is not None and entry.expires <= now:
        return (
            f"key {key} expired on {format_time(entry.expires)}, so it counts no more for installs"
        )
    return None


def _strangers(keyring: Keyring, rule: Rule, signers: Collection[PublicKey]) -> list[str]:
    trusted = {keyring.keys[keyid].public_key.raw for keyid in rule.keys}
    others = sorted({signer.keyid for signer in signers if signer.raw not in trusted})
    return [
        f"key {describe_key(keyid, keyring.keys.get(keyid))} signed it but is not in that rule"
        for keyid in others
    ]


def _reason(
    name: str, rule: Rule, counted: tuple[str, ...], remarks: list[str], keyring: Keyring
) -> str:
    keys = ", ".join(describe_key(keyid, keyring.keys[keyid]) for keyid in counted)
    by = f" (by {keys})" if counted else ""
    have = f"{len(counted)} of {rule.threshold} needed signatures{by}"
    text = f"bundle '{name}' has {have} under the rule '{rule.pattern}'"
    return "; ".join([text, *remarks])
