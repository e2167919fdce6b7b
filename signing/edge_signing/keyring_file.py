"""The keyring's file: strict JSON, whose errors name the place."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from edge_signing.digest import is_sha256_hex
from edge_signing.ed25519 import PublicKey
from edge_signing.errors import KeyFileError, KeyringError
from edge_signing.keyring import KeyEntry, Keyring, Rule
from edge_signing.limits import MAX_KEYRING_BYTES
from edge_signing.strict_json import StrictJSONError, canonical, parse_object

SCHEMA = "edge-agent/keyring/v1"
MAX_COMMENT = 256
_MAX_TOKENS = 100_000
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def parse_keyring(data: bytes) -> Keyring:
    """Reads a keyring file; see `Keyring.parse`.

    Args:
        data: The file's bytes.

    Returns:
        The keyring.

    Raises:
        KeyringError: The file is malformed; the error's path names the place.
    """
    try:
        document = parse_object(data, MAX_KEYRING_BYTES, _MAX_TOKENS)
    except StrictJSONError as error:
        raise KeyringError(f"the keyring {error}") from error
    _fields(document, "keyring", {"schema", "keys", "rules"})
    if document["schema"] != SCHEMA:
        raise KeyringError(f"is not {SCHEMA}", path="schema")
    entries = _typed(document["keys"], dict, "keys", "an object")
    rules = _typed(document["rules"], list, "rules", "a list")
    return Keyring(
        {keyid: _parse_entry(keyid, value) for keyid, value in entries.items()},
        tuple(_parse_rule(value, f"rules[{index}]") for index, value in enumerate(rules)),
    )


def serialise_keyring(keyring: Keyring) -> bytes:
    """Writes a keyring file; see `Keyring.serialise`.

    Args:
        keyring: The keyring.

    Returns:
        The file's bytes, indented for people, with a line feed at the end.
    """
    import json

    document = {
        "schema": SCHEMA,
        "keys": {keyid: _entry_fields(keyring.keys[keyid]) for keyid in sorted(keyring.keys)},
        "rules": [
            {"bundles": rule.pattern, "keys": list(rule.keys), "threshold": rule.threshold}
            for rule in keyring.rules
        ],
    }
    canonical(document)  # raises on what UTF-8 cannot hold, before anything is written
    return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8") + b"\n"


def check_entry(entry: KeyEntry) -> None:
    """Checks what a caller wants to put into a keyring, as if it came from a file.

    Args:
        entry: The entry.

    Raises:
        KeyringError: A time without time zone, or a comment that is too long or not UTF-8.
    """
    where = f"keys.{entry.public_key.keyid}"
    for name, time in (("expires", entry.expires), ("revoked", entry.revoked)):
        if time is not None and time.tzinfo is None:
            raise KeyringError("has no time zone", path=f"{where}.{name}")
    _check_comment(entry.comment, where)


def format_time(time: datetime) -> str:
    """Returns a time as keyrings write it: UTC, whole seconds, `2027-01-01T00:00:00Z`."""
    return time.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _entry_fields(entry: KeyEntry) -> dict[str, str]:
    fields = {"public_key": entry.public_key.to_base64()}
    if entry.expires is not None:
        fields["expires"] = format_time(entry.expires)
    if entry.revoked is not None:
        fields["revoked"] = format_time(entry.revoked)
    if entry.comment is not None:
        fields["comment"] = entry.comment
    return fields


def _parse_entry(keyid: str, value: Any) -> KeyEntry:
    where = f"keys.{keyid[:64]}"
    if not is_sha256_hex(keyid):
        raise KeyringError("a keyid is 64 lower-case hexadecimal digits", path=where)
    fields = _typed(value, dict, where, "an object")
    _fields(fields, where, {"public_key"}, {"expires", "revoked", "comment"})
    try:
        public_key = PublicKey.from_base64(fields["public_key"])
    except KeyFileError as error:
        raise KeyringError(error.message, path=f"{where}.public_key") from error
    comment = fields.get("comment")
    if "comment" in fields:
        _typed(comment, str, f"{where}.comment", "a string")
        _check_comment(comment, where)
    return KeyEntry(
        public_key, _time(fields, "expires", where), _time(fields, "revoked", where), comment
    )


def _check_comment(comment: str | None, where: str) -> None:
    if comment is not None and (len(comment) > MAX_COMMENT or not comment.isprintable()):
        raise KeyringError(
            f"is not one printable line of at most {MAX_COMMENT} characters",
            path=f"{where}.comment",
        )


def _parse_rule(value: Any, where: str) -> Rule:
    fields = _typed(value, dict, where, "an object")
    _fields(fields, where, {"bundles", "keys"}, {"threshold"})
    pattern = _typed(fields["bundles"], str, f"{where}.bundles", "a string")
    keys = _typed(fields["keys"], list, f"{where}.keys", "a list")
    for keyid in keys:
        if not is_sha256_hex(keyid):
            raise KeyringError("has an item that is not a keyid", path=f"{where}.keys")
    threshold = fields.get("threshold", 1)
    if type(threshold) is not int:  # `true` is an int to Python
        raise KeyringError("is not a whole number", path=f"{where}.threshold")
    return Rule(pattern, tuple(keys), threshold)


def _time(fields: dict[str, Any], name: str, where: str) -> datetime | None:
    if name not in fields:
        return None
    text = fields[name]
    try:
        if not (isinstance(text, str) and _TIME.fullmatch(text)):
            raise ValueError
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise KeyringError(
            "is not a time like 2027-01-01T00:00:00Z", path=f"{where}.{name}"
        ) from error


def _fields(
    value: dict[str, Any], where: str, required: set[str], optional: set[str] | None = None
) -> None:
    if missing := required - set(value):
        raise KeyringError(f"lacks the field {min(missing)}", path=where)
    if unknown := set(value) - required - (optional or set()):
        raise KeyringError(f"has an unknown field {min(unknown)[:64]!r}", path=where)


def _typed(value: Any, kind: type, where: str, kind_name: str) -> Any:
    if not isinstance(value, kind):
        raise KeyringError(f"is not {kind_name}", path=where)
    return value
