"""The owner's keyring on the disk, and the demo's rule after it."""

from __future__ import annotations

import fcntl
import os
import stat
import tracemalloc
from pathlib import Path

import pytest

from edge_agent import keyrings
from edge_agent.bundles import open_bundle
from edge_agent.errors import ConfigError
from edge_signing.ed25519 import PrivateKey
from edge_signing.errors import KeyringError, NotTrusted
from edge_signing.keyring import Keyring
from edge_signing.trust import Purpose

from .conftest import NOW

KEY = PrivateKey(bytes([9]) * 32).public


def with_key(ring: Keyring) -> Keyring:
    return ring.with_key(KEY).with_rule("acme/*", [KEY.keyid])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "keyring.json"


def test_no_file_is_an_empty_keyring_with_the_demo_after_it(file: Path) -> None:
    assert keyrings.owners(file) == Keyring()
    assert keyrings.in_force(file) == keyrings.shipped()
    assert not file.parent.exists()


def test_the_shipped_key_is_for_the_demo_only() -> None:
    ring = keyrings.shipped()
    assert [rule.pattern for rule in ring.rules] == ["demo/efficientnet-lite0"]
    open_bundle(keyrings.DEMO_BUNDLE, ring, NOW, Purpose.INSTALL).verified.close()


def test_the_owner_may_forbid_the_demo(file: Path) -> None:
    keyrings.change(file, lambda ring: ring.with_rule("demo/*", []))
    with pytest.raises(NotTrusted, match="trusts no key"):
        open_bundle(keyrings.DEMO_BUNDLE, keyrings.in_force(file), NOW, Purpose.LOAD)
    (key,) = keyrings.shipped().keys.values()
    keyrings.change(file, lambda _: Keyring().revoke(key.public_key, NOW))
    with pytest.raises(NotTrusted, match="revoked"):
        open_bundle(keyrings.DEMO_BUNDLE, keyrings.in_force(file), NOW, Purpose.LOAD)


def test_a_change_is_kept_and_comes_before_the_demo(file: Path) -> None:
    changed = keyrings.change(file, with_key)
    assert changed == keyrings.owners(file) == with_key(Keyring())
    assert [rule.pattern for rule in keyrings.in_force(file).rules] == [
        "acme/*",
        "demo/efficientnet-lite0",
    ]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert sorted(p.name for p in file.parent.iterdir()) == ["keyring.json", "keyring.lock"]


def test_a_change_that_fails_leaves_the_old_keyring(file: Path) -> None:
    keyrings.change(file, with_key)
    before = file.read_bytes()
    with pytest.raises(KeyringError):
        keyrings.change(file, lambda ring: ring.without_rule("nobody/*"))
    assert file.read_bytes() == before
    keyrings.change(file, lambda ring: ring.without_rule("acme/*"))  # the lock is free again


def test_a_change_made_meanwhile_is_not_lost(file: Path) -> None:
    """The edit starts from what the file holds once the lock is held, not before."""
    keyrings.change(file, lambda ring: ring.with_key(KEY))
    keyrings.change(file, lambda ring: ring.with_rule("acme/*", [KEY.keyid]))
    assert keyrings.owners(file) == with_key(Keyring())


def test_somebody_else_is_changing_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyrings, "_LOCK_TIMEOUT_S", 0.0)
    keyrings.change(file, with_key)
    lock = os.open(file.with_suffix(".lock"), os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="somebody else has been changing it"):
            keyrings.change(file, lambda ring: ring)
    finally:
        os.close(lock)
    keyrings.change(file, lambda ring: ring)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"\xff", b'{"schema": "edge-agent/keyring/v9"}', b"[" * 100_000]
)
def test_a_damaged_keyring_trusts_nobody_and_is_not_replaced(file: Path, data: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(data)
    for use in (keyrings.owners, keyrings.in_force, lambda path: keyrings.change(path, with_key)):
        with pytest.raises(KeyringError):
            use(file)
    assert file.read_bytes() == data


def test_an_endless_file_is_read_no_further_than_a_keyring_goes(file: Path) -> None:
    file.parent.mkdir()
    with open(file, "wb") as stream:
        stream.truncate(1 << 32)
    tracemalloc.start()
    try:
        with pytest.raises(KeyringError):
            keyrings.owners(file)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_folder_in_the_files_place(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        keyrings.owners(file)
    with pytest.raises(ConfigError):
        keyrings.change(file, with_key)


def test_a_file_in_the_folders_place(file: Path) -> None:
    file.parent.write_bytes(b"")
    with pytest.raises(ConfigError, match="can't be read: Not a directory"):
        keyrings.owners(file)
    with pytest.raises(ConfigError, match="can't be written"):
        keyrings.change(file, with_key)


def test_what_a_crash_left_is_swept_by_the_next_change(file: Path) -> None:
    keyrings.change(file, with_key)
    (file.parent / ".keyring.json.0123456789abcdef.tmp").write_bytes(b"half")
    (file.parent / "other.tmp").write_bytes(b"somebody's")
    keyrings.change(file, lambda ring: ring)
    names = sorted(p.name for p in file.parent.iterdir())
    assert names == ["keyring.json", "keyring.lock", "other.tmp"]
