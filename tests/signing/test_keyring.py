from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from edge_signing.errors import KeyringError
from edge_signing.keyring import KeyEntry, Keyring, Rule, merge
from edge_signing.keys import PrivateKey

A, B, C = (PrivateKey(bytes([n]) * 32).public for n in (1, 2, 3))
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(days=30)


def full() -> Keyring:
    return (
        Keyring()
        .with_key(A, expires=LATER, comment="Alice, Köln")
        .with_key(B)
        .with_rule("acme/*", [A.keyid, B.keyid], 2)
        .with_rule("evil/*", [])
        .revoke(C, NOON)
    )


def test_the_file() -> None:
    assert json.loads(full().serialise()) == {
        "schema": "edge-agent/keyring/v1",
        "keys": {
            A.keyid: {
                "public_key": A.to_base64(),
                "expires": "2026-07-01T12:00:00Z",
                "comment": "Alice, Köln",
            },
            B.keyid: {"public_key": B.to_base64()},
            C.keyid: {"public_key": C.to_base64(), "revoked": "2026-06-01T12:00:00Z"},
        },
        "rules": [
            {"bundles": "evil/*", "keys": [], "threshold": 1},
            {"bundles": "acme/*", "keys": [A.keyid, B.keyid], "threshold": 2},
        ],
    }


@pytest.mark.parametrize("keyring", [Keyring(), full()])
def test_round_trip(keyring: Keyring) -> None:
    assert Keyring.parse(keyring.serialise()) == keyring
    assert Keyring.parse(keyring.serialise()).serialise() == keyring.serialise()


def test_operations_change_nothing_in_place() -> None:
    keyring = full()
    before = keyring.serialise()
    keyring.with_key(A)
    keyring.with_rule("x", [A.keyid])
    keyring.without_rule("acme/*")
    keyring.revoke(A, NOON)
    assert keyring.serialise() == before


def test_times_in_other_zones_become_utc() -> None:
    zone = timezone(timedelta(hours=2))
    keyring = Keyring().with_key(A, expires=datetime(2026, 6, 1, 14, tzinfo=zone))
    assert b"2026-06-01T12:00:00Z" in keyring.serialise()


Edit = Callable[[dict[str, Any]], object]


def top(**fields: Any) -> Edit:
    return lambda d: d.update(fields)


def entry(**fields: Any) -> Edit:
    return lambda d: d["keys"][A.keyid].update(fields)


def rule(**fields: Any) -> Edit:
    return lambda d: d["rules"][1].update(fields)


REFUSED: dict[str, tuple[Edit, str | None]] = {
    "schema": (top(schema="edge-agent/keyring/v2"), "schema"),
    "no schema": (lambda d: d.pop("schema"), "keyring"),
    "unknown field": (top(note=1), "keyring"),
    "keys list": (top(keys=[]), "keys"),
    "rules object": (top(rules={}), "rules"),
    "no rules": (lambda d: d.pop("rules"), "keyring"),
    "entry null": (lambda d: d["keys"].update({A.keyid: None}), f"keys.{A.keyid}"),
    "entry unknown field": (entry(trusted=True), f"keys.{A.keyid}"),
    "keyid of another": (entry(public_key=B.to_base64()), f"keys.{A.keyid}"),
    "keyid upper case": (
        lambda d: d["keys"].update({A.keyid.upper(): d["keys"].pop(A.keyid)}),
        f"keys.{A.keyid.upper()}",
    ),
    "same key under two ids": (
        lambda d: d["keys"].update({"0" * 64: d["keys"][A.keyid]}),
        f"keys.{'0' * 64}",
    ),
    "no public key": (lambda d: d["keys"][A.keyid].pop("public_key"), f"keys.{A.keyid}"),
    "public key number": (entry(public_key=1), f"keys.{A.keyid}.public_key"),
    "public key null": (entry(public_key=None), f"keys.{A.keyid}.public_key"),
    "public key not base64": (entry(public_key="?"), f"keys.{A.keyid}.public_key"),
    "public key raw": (entry(public_key="AQEB"), f"keys.{A.keyid}.public_key"),
    "expires date": (entry(expires="2027-01-01"), f"keys.{A.keyid}.expires"),
    "expires offset": (entry(expires="2027-01-01T00:00:00+00:00"), f"keys.{A.keyid}.expires"),
    "expires nonsense": (entry(expires="2027-13-01T00:00:00Z"), f"keys.{A.keyid}.expires"),
    "expires number": (entry(expires=1800000000), f"keys.{A.keyid}.expires"),
    "expires null": (entry(expires=None), f"keys.{A.keyid}.expires"),
    "expires other digits": (entry(expires="\uff12027-01-01T00:00:00Z"), f"keys.{A.keyid}.expires"),
    "revoked true": (entry(revoked=True), f"keys.{A.keyid}.revoked"),
    "revoked empty": (entry(revoked=""), f"keys.{A.keyid}.revoked"),
    "comment number": (entry(comment=1), f"keys.{A.keyid}.comment"),
    "comment null": (entry(comment=None), f"keys.{A.keyid}.comment"),
    "comment control": (entry(comment="a\x1b[2J"), f"keys.{A.keyid}.comment"),
    "comment long": (entry(comment="a" * 257), f"keys.{A.keyid}.comment"),
    "rule string": (lambda d: d["rules"].append("x"), "rules[2]"),
    "rule unknown field": (rule(deny=True), "rules[1]"),
    "rule no keys": (lambda d: d["rules"][1].pop("keys"), "rules[1]"),
    "rule keys string": (rule(keys=A.keyid), "rules[1].keys"),
    "rule keys number": (rule(keys=[1]), "rules[1].keys"),
    "rule unknown key": (rule(keys=["0" * 64]), "rules[1].keys"),
    "rule key twice": (rule(keys=[A.keyid, A.keyid]), "rules[1].keys"),
    "threshold 0": (rule(threshold=0), "rules[1].threshold"),
    "threshold -1": (rule(threshold=-1), "rules[1].threshold"),
    "threshold 3 of 2": (rule(threshold=3), "rules[1].threshold"),
    "threshold true": (rule(threshold=True), "rules[1].threshold"),
    "threshold float": (rule(threshold=1.0), "rules[1].threshold"),
    "threshold string": (rule(threshold="1"), "rules[1].threshold"),
    "threshold null": (rule(threshold=None), "rules[1].threshold"),
    "no-rule with threshold 2": (rule(keys=[], threshold=2), "rules[1].threshold"),
    "pattern ?": (rule(bundles="acme/?"), "rules[1].bundles"),
    "pattern [": (rule(bundles="acme/[a]"), "rules[1].bundles"),
    "pattern **": (rule(bundles="**"), "rules[1].bundles"),
    "pattern number": (rule(bundles=1), "rules[1].bundles"),
}


@pytest.mark.parametrize(("edit", "place"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_files_name_the_place(edit: Edit, place: str | None) -> None:
    document = json.loads(full().serialise())
    edit(document)
    with pytest.raises(KeyringError) as caught:
        Keyring.parse(json.dumps(document).encode())
    assert caught.value.path == place


def test_a_threshold_may_be_absent() -> None:
    document = json.loads(full().serialise())
    for fields in document["rules"]:
        del fields["threshold"]
    assert [r.threshold for r in Keyring.parse(json.dumps(document).encode()).rules] == [1, 1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        b'{"keys":{},"keys":{}}',
        b" " * (1024 * 1024 + 1),
        full().serialise().replace(b"acme/*", b"\\ud800"),
    ],
    ids=lambda data: str(data[:12]),
)
def test_hostile_files(data: bytes) -> None:
    with pytest.raises(KeyringError):
        Keyring.parse(data)


def test_rules_go_first_or_last() -> None:
    keyring = Keyring().with_key(A).with_rule("a", [A.keyid])
    keyring = keyring.with_rule("b", []).with_rule("c", [], first=False)
    assert [r.pattern for r in keyring.rules] == ["b", "a", "c"]
    assert [r.pattern for r in keyring.with_rule("c", [A.keyid]).rules] == ["c", "b", "a"]
    replaced = keyring.with_rule("a", [], first=False)
    assert [(r.pattern, r.keys) for r in replaced.rules] == [("b", ()), ("a", ()), ("c", ())]
    assert [r.pattern for r in keyring.without_rule("a").rules] == ["b", "c"]
    with pytest.raises(KeyringError):
        keyring.without_rule("zzz")


def test_operations_refuse_what_the_file_would() -> None:
    keyring = Keyring().with_key(A)
    for pattern, keyids, threshold in [
        ("?", [A.keyid], 1),
        ("a", [B.keyid], 1),
        ("a", [A.keyid], 2),
        ("a", [A.keyid, A.keyid], 2),
        ("a", [A.keyid], 0),
    ]:
        with pytest.raises(KeyringError):
            keyring.with_rule(pattern, keyids, threshold)
    with pytest.raises(KeyringError, match="time zone"):
        keyring.with_key(A, expires=datetime(2026, 1, 1))
    with pytest.raises(KeyringError, match="time zone"):
        keyring.revoke(A, datetime(2026, 1, 1))
    with pytest.raises(KeyringError):
        keyring.with_key(A, comment="a\nb")
    with pytest.raises(KeyringError):
        keyring.with_key(A, comment="\ud800")
    with pytest.raises(KeyringError, match="keyid"):
        Keyring({"0" * 64: KeyEntry(A)})
    with pytest.raises(KeyringError, match="twice"):
        Keyring({A.keyid: KeyEntry(A)}, (Rule("a", (A.keyid, A.keyid), 2),))


def test_revocation_is_for_ever() -> None:
    keyring = Keyring().with_key(A, comment="x").revoke(A.keyid, NOON)
    assert keyring.with_key(A, expires=LATER).keys[A.keyid].revoked == NOON
    assert keyring.revoke(A.keyid, LATER).keys[A.keyid].revoked == NOON
    assert keyring.revoke(A.keyid, NOON - timedelta(1)).keys[A.keyid].revoked < NOON  # type: ignore[operator]
    assert keyring.keys[A.keyid].comment == "x"


def test_revoking_an_unknown_key_needs_its_public_key() -> None:
    with pytest.raises(KeyringError, match="not in this keyring"):
        Keyring().revoke(A.keyid, NOON)
    assert Keyring().revoke(A, NOON).keys[A.keyid].revoked == NOON


def test_find_completes_a_keyid() -> None:
    assert full().find(A.keyid[:16]) == A.keyid
    for prefix in ("", A.keyid[:7], "0" * 16, "zzzzzzzzz"):
        with pytest.raises(KeyringError):
            full().find(prefix)


@pytest.mark.parametrize("swapped", [False, True])
def test_merging_takes_the_stricter(swapped: bool) -> None:
    one = Keyring().with_key(A, expires=NOON).revoke(B, LATER)
    two = Keyring().with_key(A, expires=LATER).with_key(B).with_key(C).revoke(B, NOON)
    merged = merge(two, one) if swapped else merge(one, two)
    assert merged.keys[A.keyid].expires == NOON
    assert merged.keys[B.keyid].revoked == NOON
    assert set(merged.keys) == {A.keyid, B.keyid, C.keyid}


def test_merging_keeps_the_order_of_rules_and_the_first_comment() -> None:
    one = Keyring().with_key(A, comment="one").with_rule("a", [A.keyid]).with_rule("b", [])
    two = Keyring().with_key(A, comment="two").with_key(B, comment="B").with_rule("a", [])
    merged = merge(one, two)
    assert [(r.pattern, bool(r.keys)) for r in merged.rules] == [
        ("b", False),
        ("a", True),
        ("a", False),
    ]
    assert [merged.keys[k.keyid].comment for k in (A, B)] == ["one", "B"]
    assert merge(Keyring(), one) == merge(one, Keyring()) == one
    assert Keyring.parse(merged.serialise()) == merged


def test_what_is_known_of_a_key_stays_until_it_is_said_anew() -> None:
    keyring = Keyring().with_key(A, expires=LATER, comment="Acme").with_key(A)
    assert keyring.keys[A.keyid][1:] == (LATER, None, "Acme")
    keyring = keyring.with_key(A, comment="New").without_expiry(A.keyid)
    assert keyring.keys[A.keyid][1:] == (None, None, "New")
