"""The keyring: which keys may sign which bundles, as a value that never changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from edge_signing.ed25519 import PublicKey
from edge_signing.errors import KeyringError
from edge_signing.patterns import check_pattern

ABBREVIATED = 16
"""How many digits of a keyid messages show; `Keyring.find` takes them."""


class KeyEntry(NamedTuple):
    """What a keyring knows about a key.

    Attributes:
        public_key: The key.
        expires: From this moment it stops counting for new installs (UTC).
        revoked: When it was revoked (UTC). A revoked key never counts, whatever this time is:
            who stole a key also chooses the dates in what he signs.
        comment: Whose it is, for people.
    """

    public_key: PublicKey
    expires: datetime | None = None
    revoked: datetime | None = None
    comment: str | None = None


class Rule(NamedTuple):
    """Which keys count for which bundles.

    Attributes:
        pattern: Bundle names; `*` stands for any characters but `/`.
        keys: Keyids; none at all is an explicit no.
        threshold: How many distinct ones of them must have signed.
    """

    pattern: str
    keys: tuple[str, ...]
    threshold: int = 1


@dataclass(frozen=True)
class Keyring:
    """Keys, and ordered rules: the first that matches a bundle's name decides, none means no.

    Attributes:
        keys: What is known about each key, by keyid.
        rules: In the order of their precedence.

    Raises:
        KeyringError: A keyid is not that of its key; a rule has a bad pattern, names an unknown
            key or one twice, or asks for more signatures than it has distinct keys.
    """

    keys: Mapping[str, KeyEntry] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for keyid, entry in self.keys.items():
            if keyid != entry.public_key.keyid:
                raise KeyringError("the keyid is not that of its public key", path=f"keys.{keyid}")
        for index, rule in enumerate(self.rules):
            self._check_rule(rule, f"rules[{index}]")

    def _check_rule(self, rule: Rule, where: str) -> None:
        check_pattern(rule.pattern, f"{where}.bundles")
        if unknown := [keyid for keyid in rule.keys if keyid not in self.keys]:
            raise KeyringError(f"names the unknown key {unknown[0]}", path=f"{where}.keys")
        distinct = {self.keys[keyid].public_key for keyid in rule.keys}
        if len(distinct) != len(rule.keys):
            raise KeyringError("names a key twice", path=f"{where}.keys")
        if not 1 <= rule.threshold <= max(1, len(distinct)):
            allowed = f"from 1 to the rule's {len(distinct)} keys" if distinct else "1, or absent"
            raise KeyringError(
                f"is {rule.threshold}, but must be {allowed}", path=f"{where}.threshold"
            )

    @classmethod
    def parse(cls, data: bytes) -> Keyring:
        """Reads a keyring file.

        Args:
            data: The file's bytes.

        Returns:
            The keyring.

        Raises:
            KeyringError: Over 1 MiB, JSON that is not strict, an unknown or missing field, a wrong
                type or value; the error's path names the place.
        """
        from edge_signing.keyring_file import parse_keyring

        return parse_keyring(data)

    def serialise(self) -> bytes:
        """Returns the bytes of a keyring file; equal keyrings give equal bytes."""
        from edge_signing.keyring_file import serialise_keyring

        return serialise_keyring(self)

    def find(self, prefix: str) -> str:
        """Completes an abbreviated keyid.

        Args:
            prefix: At least 8 leading digits of a keyid.

        Returns:
            The whole keyid.

        Raises:
            KeyringError: Too short, unknown, or the beginning of several.
        """
        found = [keyid for keyid in self.keys if keyid.startswith(prefix)]
        if len(prefix) < 8 or not found:
            raise KeyringError(f"no key {prefix[:64]!r} is in the keyring")
        if len(found) > 1:
            raise KeyringError(f"{len(found)} keys begin with {prefix!r}", hint="give more digits")
        return found[0]

    def with_key(
        self, key: PublicKey, *, expires: datetime | None = None, comment: str | None = None
    ) -> Keyring:
        """Adds a key, or changes the expiry or comment of a known one.

        Args:
            key: The key; one that is revoked stays so.
            expires: Its expiry, with time zone; None keeps a known key's.
            comment: Whose it is; None keeps a known key's.

        Returns:
            The new keyring. A key that is revoked stays so.

        Raises:
            KeyringError: The expiry lacks a time zone, or the comment is too long.
        """
        known = self.keys.get(key.keyid, KeyEntry(key))
        entry = known._replace(
            expires=expires or known.expires,
            comment=known.comment if comment is None else comment,
        )
        return self._with_entry(entry)

    def without_expiry(self, keyid: str) -> Keyring:
        """Lets a key count for ever.

        Args:
            keyid: Of a known key.

        Returns:
            The new keyring.
        """
        return self._with_entry(self.keys[keyid]._replace(expires=None))

    def with_rule(
        self, pattern: str, keyids: Iterable[str], threshold: int = 1, *, first: bool = True
    ) -> Keyring:
        """Adds a rule.

        Args:
            pattern: Bundle names, such as `acme/*`.
            keyids: Known keys; none for an explicit no.
            threshold: How many of them must have signed.
            first: Before all other rules; or in the place of an older rule of the same pattern,
                else after all others.

        Returns:
            The new keyring. An older rule of the same pattern is replaced, since of two only the
            first could ever match.

        Raises:
            KeyringError: As for the class.
        """
        rule = Rule(pattern, tuple(dict.fromkeys(keyids)), threshold)
        patterns = [old.pattern for old in self.rules]
        if first or pattern not in patterns:
            others = tuple(old for old in self.rules if old.pattern != pattern)
            return replace(self, rules=(rule, *others) if first else (*others, rule))
        at = patterns.index(pattern)
        return replace(self, rules=(*self.rules[:at], rule, *self.rules[at + 1 :]))

    def without_rule(self, pattern: str) -> Keyring:
        """Removes the rules with exactly this pattern.

        Args:
            pattern: The pattern as it was given.

        Returns:
            The new keyring.

        Raises:
            KeyringError: There is no such rule.
        """
        others = tuple(rule for rule in self.rules if rule.pattern != pattern)
        if others == self.rules:
            raise KeyringError(f"there is no rule {pattern[:128]!r}")
        return replace(self, rules=others)

    def revoke(self, key: str | PublicKey, at: datetime) -> Keyring:
        """Revokes a key for ever.

        Args:
            key: The keyid of a known key; or the public key itself, known here or not, so that a
                keyring may revoke what another layer trusts.
            at: When, with time zone; an earlier revocation stays.

        Returns:
            The new keyring.

        Raises:
            KeyringError: The keyid is not known here, or the time lacks a time zone.
        """
        keyid = key if isinstance(key, str) else key.keyid
        known = self.keys.get(keyid)
        if known is None:
            if isinstance(key, str):
                raise KeyringError(
                    f"the key {keyid[:64]} is not in this keyring",
                    hint="give its public key to revoke it here",
                )
            known = KeyEntry(key)
        return self._with_entry(known._replace(revoked=_earlier(known.revoked, at)))

    def _with_entry(self, entry: KeyEntry) -> Keyring:
        from edge_signing.keyring_file import check_entry

        check_entry(entry)
        return replace(self, keys={**self.keys, entry.public_key.keyid: entry})


def merge(first: Keyring, then: Keyring) -> Keyring:
    """Puts two layers into one.

    Args:
        first: Its rules come before the other's, and its comments win.
        then: The other.

    Returns:
        A keyring in which a key is revoked when either says so, and expires when the first of the
        two says so: a layer can only take trust in a key away from the other, never give it back.
    """
    keys = dict(first.keys)
    for keyid, entry in then.keys.items():
        known = keys.get(keyid)
        keys[keyid] = entry if known is None else _merge_entries(known, entry)
    return Keyring(keys, first.rules + then.rules)


def _merge_entries(first: KeyEntry, then: KeyEntry) -> KeyEntry:
    return KeyEntry(
        first.public_key,
        _earlier(first.expires, then.expires),
        _earlier(first.revoked, then.revoked),
        first.comment if first.comment is not None else then.comment,
    )


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)
