from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from edge_signing.keyring import Keyring, merge
from edge_signing.keys import PrivateKey
from edge_signing.trust import Purpose, judge

A, B, C, D = (PrivateKey(bytes([n]) * 32).public for n in (1, 2, 3, 4))
NOW = datetime(2026, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)
BASE = Keyring().with_key(A, comment="Alice").with_key(B).with_key(C)
ONE = BASE.with_rule("acme/*", [A.keyid])
TWO = BASE.with_rule("acme/*", [A.keyid, B.keyid, C.keyid], 2)
EXPIRED = ONE.with_key(A, expires=NOW - DAY, comment="Alice")
REVOKED = ONE.revoke(A.keyid, NOW - DAY)
short = {key: key.keyid[:16] for key in (A, B, C, D)}

ROWS = {
    "one key": (ONE, "acme/det", [A], True, "1 of 1 needed signatures"),
    "nobody": (ONE, "acme/det", [], False, "0 of 1 needed signatures"),
    "other key": (ONE, "acme/det", [B], False, f"key {short[B]} signed it but is not in that rule"),
    "stranger": (ONE, "acme/det", [D], False, f"key {short[D]} signed it but is not in that rule"),
    "no rule": (ONE, "evil/det", [A], False, "no rule of the keyring matches bundle name"),
    "empty keyring": (Keyring(), "acme/det", [A], False, "no rule of the keyring matches"),
    "star stops at slash": (ONE, "acme/det/x", [A], False, "no rule"),
    "two of two": (TWO, "acme/det", [A, B], True, "2 of 2 needed signatures"),
    "three of two": (TWO, "acme/det", [A, B, C], True, "3 of 2 needed signatures"),
    "one of two": (TWO, "acme/det", [A], False, "1 of 2 needed signatures"),
    "one key twice": (TWO, "acme/det", [A, A], False, "1 of 2 needed signatures"),
    "one and a stranger": (TWO, "acme/det", [A, D], False, "1 of 2 needed signatures"),
    "explicit no": (
        ONE.with_rule("acme/det", []), "acme/det", [A], False,
        "the first rule that matches 'acme/det', 'acme/det', trusts no key",
    ),
    "no after yes": (ONE.with_rule("acme/det", [], first=False), "acme/det", [A], True, "1 of 1"),
    "first rule decides": (
        ONE.with_rule("acme/det", [B.keyid]), "acme/det", [A], False,
        f"{short[A]} (Alice) signed it but",
    ),
    "expired, says so": (
        EXPIRED, "acme/det", [A], False, f"key {short[A]} (Alice) expired on 2026-05-31T00:00:00Z",
    ),
    "expires this second": (ONE.with_key(A, expires=NOW), "acme/det", [A], False, "expired on"),
    "expires next second": (
        ONE.with_key(A, expires=NOW + timedelta(seconds=1)), "acme/det", [A], True, "1 of 1",
    ),
    "revoked, says so": (
        REVOKED, "acme/det", [A], False,
        f"key {short[A]} (Alice) was revoked on 2026-05-31T00:00:00Z",
    ),
    "revoked in the future": (ONE.revoke(A, NOW + DAY), "acme/det", [A], False, "was revoked on"),
    "revoked one of three": (TWO.revoke(A, NOW), "acme/det", [A, B], False, "1 of 2"),
    "the others suffice": (TWO.revoke(A, NOW), "acme/det", [A, B, C], True, "2 of 2"),
    "revoked by another layer": (
        merge(Keyring().revoke(A, NOW), ONE), "acme/det", [A], False, "was revoked on",
    ),
    "layer denies": (
        merge(Keyring().with_rule("acme/*", []), ONE), "acme/det", [A], False, "trusts no key",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("keyring", "name", "signers", "trusted", "reason"), ROWS.values(), ids=ROWS
)
def test_verdicts_for_installing(
    keyring: Keyring, name: str, signers: list[object], trusted: bool, reason: str
) -> None:
    verdict = judge(keyring, name, signers, NOW, Purpose.INSTALL)  # type: ignore[arg-type]
    assert verdict.trusted is trusted
    assert reason in verdict.reason
    assert "\n" not in verdict.reason


@pytest.mark.parametrize(
    ("keyring", "trusted"),
    [
        (ONE, True),
        (EXPIRED, True),
        (REVOKED, False),
        (EXPIRED.revoke(A.keyid, NOW + DAY), False),
        (Keyring(), False),
    ],
)
def test_loading_outlives_expiry_but_not_revocation(keyring: Keyring, trusted: bool) -> None:
    assert judge(keyring, "acme/det", [A], NOW, Purpose.LOAD).trusted is trusted
    century = NOW.replace(year=2126)
    assert judge(keyring, "acme/det", [A], century, Purpose.LOAD).trusted is trusted


def test_the_verdict_names_rule_and_signers() -> None:
    verdict = judge(TWO, "acme/det", [B, A, D], NOW, Purpose.INSTALL)
    assert verdict.rule == TWO.rules[0]
    assert verdict.signers == (A.keyid, B.keyid)
    assert judge(TWO, "x", [A], NOW, Purpose.INSTALL).rule is None


def test_signers_may_be_any_collection() -> None:
    assert judge(ONE, "acme/det", {A}, NOW, Purpose.INSTALL).trusted
    assert judge(ONE, "acme/det", (A,), NOW, Purpose.INSTALL).trusted


def test_a_clock_without_zone_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="time zone"):
        judge(ONE, "acme/det", [A], datetime(2026, 6, 1), Purpose.INSTALL)
