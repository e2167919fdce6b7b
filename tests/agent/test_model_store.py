"""The store of installed bundles: whatever happens, the old state or the new one."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_agent import model_store
from edge_agent.errors import GoldenMismatchError, ModelNotFoundError, StoreError
from edge_agent.model_store import ModelStore
from edge_signing.errors import BundleChanged
from edge_signing.trust import Purpose

from . import models

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle

    from .conftest import Publisher, Python

WHEN = "2026-06-01T00:00:00+00:00"


def rows(version: str) -> models.Yaml:
    return models.changed(models.ROWS, "version", version)


class Shelf:
    """A store, and bundles to put there."""

    def __init__(self, root: Path, publisher: Publisher) -> None:
        self.root = root
        self.store = ModelStore(root)
        self.publisher = publisher

    def bundle(self, version: str = "1.0.0", document: models.Yaml | None = None) -> Bundle:
        folder = self.publisher.root / f"v{version}-{len(document or {})}"
        if not folder.exists():
            self.publisher.sign(document or rows(version), folder.name)
        return self.publisher.open(folder, Purpose.INSTALL)

    def install(self, version: str = "1.0.0", document: models.Yaml | None = None) -> bool:
        return self.store.install(self.bundle(version, document), WHEN, self.publisher.check)

    def versions(self, name: str = "acme/rows") -> list[str]:
        """All versions, oldest first; the active one has a star."""
        installs = self.store.list().get(name)
        bundles = installs.bundles if installs else ()
        active = installs.active if installs else ""
        return [b.version + "*" * (b.digest == active) for b in bundles]

    def leftovers(self) -> list[str]:
        """What lies in the state folder beyond the index, the lock and named bundles."""
        named = {
            self.root / "bundles" / b.digest.removeprefix("sha256:")
            for installs in self.store.list().values()
            for b in installs.bundles
        }
        known = {self.root / "bundles", self.root / "lock", self.root / "models.json"} | named
        there = {*self.root.glob("*"), *self.root.glob("bundles/*")}
        return sorted(str(path.relative_to(self.root)) for path in there ^ known)


@pytest.fixture
def shelf(tmp_path: Path, publisher: Publisher) -> Shelf:
    return Shelf(tmp_path / "state", publisher)


def test_nothing_is_installed_and_looking_makes_nothing(shelf: Shelf) -> None:
    assert (shelf.store.list(), shelf.store.find("acme/rows")) == ({}, None)
    assert not shelf.root.exists()


def test_install_activates_and_keeps_the_older_ones(shelf: Shelf) -> None:
    assert shelf.install("1.0.0")
    assert shelf.install("2.0.0")
    assert shelf.versions() == ["1.0.0", "2.0.0*"]
    (old, new) = shelf.store.list()["acme/rows"].bundles
    assert old.installed_at == WHEN
    assert old.size_bytes == sum(map(len, models.bundle_files(rows("1.0.0")).values()))
    assert shelf.store.find("acme/rows") == shelf.root / "bundles" / new.digest[7:]
    assert shelf.store.find("acme/rows@1.0.0") == shelf.root / "bundles" / old.digest[7:]
    for missing in ("acme/rows@3.0.0", "acme/row", "acme", "", "@1.0.0", "../state"):
        assert shelf.store.find(missing) is None
    assert shelf.leftovers() == []


def test_the_copy_is_the_bundle_and_for_the_agent_only(shelf: Shelf) -> None:
    old = os.umask(0)
    try:
        shelf.install()
    finally:
        os.umask(old)
    folder = shelf.store.find("acme/rows")
    assert folder
    with shelf.publisher.open(folder) as copy:
        assert copy.ref == shelf.bundle().ref
    modes = {p: stat.S_IMODE(p.stat().st_mode) for p in (shelf.root, *shelf.root.rglob("*"))}
    wrong = {p: oct(m) for p, m in modes.items() if m != (0o700 if p.is_dir() else 0o600)}
    assert wrong == {}


def test_the_same_bytes_again_are_not_copied_but_activated(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    shelf.install("2.0.0")
    folder = shelf.store.find("acme/rows@1.0.0")
    assert folder
    inode = folder.stat().st_ino
    assert not shelf.install("1.0.0")
    assert shelf.versions() == ["2.0.0", "1.0.0*"]
    assert folder.stat().st_ino == inode


def test_two_names_do_not_touch_each_other(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    shelf.install("2.0.0", models.PAIR)
    assert (shelf.versions(), shelf.versions("acme/pair")) == (["1.0.0*"], ["2.0.0*"])
    shelf.store.remove("acme/pair")
    assert (shelf.versions(), shelf.versions("acme/pair")) == (["1.0.0*"], [])


def test_one_version_with_other_bytes_is_the_later_one(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    shelf.install("1.0.0", models.changed(rows("1.0.0"), "summary", "again"))
    assert shelf.versions() == ["1.0.0", "1.0.0*"]
    found = shelf.store.find("acme/rows@1.0.0")
    assert found == shelf.store.find("acme/rows")
    assert len(shelf.store.remove("acme/rows@1.0.0")) == 2


def test_removing_the_active_one_rolls_back(shelf: Shelf) -> None:
    for version in ("1.0.0", "2.0.0", "3.0.0"):
        shelf.install(version)
    shelf.install("1.0.0")
    gone = shelf.store.remove("acme/rows@1.0.0")
    assert [one.version for one in gone] == ["1.0.0"]
    assert shelf.versions() == ["2.0.0", "3.0.0*"]
    assert shelf.leftovers() == []
    shelf.store.remove("acme/rows@2.0.0")
    assert shelf.versions() == ["3.0.0*"]
    shelf.store.remove("acme/rows")
    assert (shelf.versions(), shelf.leftovers()) == ([], [])


@pytest.mark.parametrize("reference", ["acme/other", "acme/rows@9.0.0", "", "acme/rows@1"])
def test_removing_what_is_not_there(shelf: Shelf, reference: str) -> None:
    shelf.install()
    with pytest.raises(ModelNotFoundError, match="is not installed"):
        shelf.store.remove(reference)
    assert shelf.versions() == ["1.0.0*"]


# What goes wrong


def test_a_check_that_refuses_the_copy_calls_the_install_off(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    seen: list[Path] = []

    def refuse(folder: Path) -> None:
        seen.append(folder)
        shelf.publisher.check(folder)  # it is whole
        raise GoldenMismatchError("no")

    with pytest.raises(GoldenMismatchError):
        shelf.store.install(shelf.bundle("2.0.0"), WHEN, refuse)
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0*"], [])
    assert seen[0].parent == shelf.root / "incoming"


def test_a_file_swapped_after_the_check_calls_the_install_off(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    bundle = shelf.bundle("2.0.0")
    weights = Path(bundle.verified.location) / "model.onnx"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    with pytest.raises(BundleChanged):
        shelf.store.install(bundle, WHEN, shelf.publisher.check)
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0*"], [])


@pytest.mark.parametrize("damage", ["changed", "missing", "more", "link", "no folder", "a file"])
def test_a_damaged_copy_is_healed_by_installing_again(shelf: Shelf, damage: str) -> None:
    shelf.install()
    folder = shelf.store.find("acme/rows")
    assert folder
    if damage == "changed":
        (folder / "model.onnx").write_bytes(bytes(50))
    elif damage == "missing":
        (folder / "model.yaml").unlink()
    elif damage == "more":
        (folder / "deep").mkdir()
        (folder / "deep" / "file").write_bytes(b"")
    elif damage == "link":
        (folder / "model.yaml").rename(folder / "other")
        (folder / "model.yaml").symlink_to("other")
    else:
        shutil.rmtree(folder)
        if damage == "a file":
            folder.write_bytes(b"")
    assert shelf.install()
    shelf.publisher.check(folder)
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0*"], [])


def test_leftovers_are_swept_by_the_next_change(shelf: Shelf) -> None:
    shelf.install()
    keep = shelf.root / "elsewhere"
    keep.mkdir()
    (keep / "file").write_bytes(b"keep")
    (shelf.root / "incoming" / "99-0123" / "deep").mkdir(parents=True)
    (shelf.root / "incoming" / "99-0123" / "deep" / "file").write_bytes(b"")
    (shelf.root / "bundles" / ("0" * 64)).mkdir()
    (shelf.root / "bundles" / "stray").write_bytes(b"")
    (shelf.root / "bundles" / "link").symlink_to(keep)
    (shelf.root / ".models.json.0123456789abcdef.tmp").write_bytes(b"half")
    with pytest.raises(ModelNotFoundError):
        shelf.store.remove("acme/other")
    assert shelf.leftovers() == ["elsewhere"]
    assert (keep / "file").read_bytes() == b"keep"


def test_an_incoming_that_is_a_link_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "inside").mkdir(parents=True)
    shelf.root.mkdir()
    (shelf.root / "incoming").symlink_to(victim)
    assert shelf.install()
    assert [p.name for p in victim.rglob("*")] == ["inside"]


DIGEST = "sha256:" + "0" * 64
ENTRY = {"digest": DIGEST, "version": "1.0.0", "installed_at": WHEN, "size_bytes": 1}


def index(**changes: Any) -> bytes:
    models_ = {"acme/rows": {"active": DIGEST, "bundles": [ENTRY]} | changes}
    return json.dumps({"schema": "edge-agent/models/v1", "models": models_}).encode()


DAMAGED = {
    "empty": b"",
    "zeros": bytes(300),
    "cut": index()[:-5],
    "no UTF-8": index().replace(b"acme", b"\xff\xfe"),
    "an array": b"[]",
    "another schema": index().replace(b"v1", b"v2"),
    "a key more": index(x=1),
    "no bundles": index(bundles=[]),
    "an active one that is not there": index(active="sha256:" + "1" * 64),
    "a path for a digest": index(active="../..", bundles=[ENTRY | {"digest": "../.."}]),
    "a digest and a newline": index().replace(b'0"', b'0\\n"'),
    "a number for a version": index(bundles=[ENTRY | {"version": 1}]),
    "too large": index() + b" " * model_store._MAX_INDEX_BYTES,
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_index_is_an_error_that_removes_nothing(shelf: Shelf, case: str) -> None:
    shelf.install()
    folder = shelf.store.find("acme/rows")
    assert folder
    (shelf.root / "models.json").write_bytes(DAMAGED[case])
    for use in (
        shelf.store.list,
        lambda: shelf.store.find("acme/rows"),
        lambda: shelf.install("2.0.0"),
        lambda: shelf.store.remove("acme/rows"),
    ):
        with pytest.raises(StoreError, match="is damaged") as caught:
            use()
        assert caught.value.path == str(shelf.root / "models.json")
        assert "install the models again" in (caught.value.hint or "")
    assert (shelf.root / "models.json").read_bytes() == DAMAGED[case]
    shelf.publisher.check(folder)


def test_the_hint_for_a_damaged_index_works(shelf: Shelf) -> None:
    shelf.install("1.0.0")
    (shelf.root / "models.json").write_bytes(b"")
    (shelf.root / "models.json").unlink()
    assert shelf.install("2.0.0")
    assert (shelf.versions(), shelf.leftovers()) == (["2.0.0*"], [])


def test_a_file_in_the_state_folders_place(shelf: Shelf) -> None:
    shelf.root.write_bytes(b"")
    with pytest.raises(StoreError, match="can't be changed: "):
        shelf.install()
    assert shelf.store.list() == {}


def test_a_folder_in_the_indexs_place(shelf: Shelf) -> None:
    (shelf.root / "models.json").mkdir(parents=True)
    with pytest.raises(StoreError, match="can't be read: Is a directory"):
        shelf.store.list()


def test_preflight_says_how_much_is_missing(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.install("1.0.0")
    usage = shutil.disk_usage(shelf.root)._replace(free=16 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StoreError, match="needs 16 MiB, 16 MiB are free") as caught:
        shelf.install("2.0.0")
    assert "remove" in (caught.value.hint or "")
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0*"], [])
    assert not shelf.install("1.0.0")  # needs no space


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 18 MiB."""
    libc = ctypes.CDLL(None, use_errno=True)
    disk = tmp_path / "disk"
    disk.mkdir()
    if libc.mount(b"tmpfs", bytes(disk), b"tmpfs", 0, b"size=18m") != 0:
        pytest.skip("only root can mount a small disk")
    yield disk
    assert libc.umount2(bytes(disk), 2) == 0


def test_a_disk_that_fills_up_before_the_index_is_written(
    small_disk: Path, publisher: Publisher
) -> None:
    shelf = Shelf(small_disk / "state", publisher)
    shelf.install("1.0.0")

    def fill(folder: Path) -> None:
        publisher.check(folder)
        with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as stream:
            while True:
                stream.write(bytes(65536))

    with pytest.raises(StoreError, match="No space left"):
        shelf.store.install(shelf.bundle("2.0.0"), WHEN, fill)
    assert shelf.versions() == ["1.0.0*"]
    (small_disk / "filler").unlink()
    assert shelf.install("2.0.0")
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0", "2.0.0*"], [])


FULL = """
import resource, sys
from datetime import UTC, datetime
from pathlib import Path
from edge_agent.bundles import open_bundle
from edge_agent.errors import StoreError
from edge_agent.model_store import ModelStore
from edge_signing.keyring import Keyring
from edge_signing.trust import Purpose
root, limit = Path(sys.argv[1]), int(sys.argv[2])
keyring = Keyring.parse((root / "keyring.json").read_bytes())
now = datetime(2026, 6, 1, tzinfo=UTC)
with open_bundle(root / "new", keyring, now, Purpose.INSTALL) as bundle:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        ModelStore(root / "state").install(bundle, "now", lambda folder: None)
    except StoreError as error:
        print(error)
"""


@pytest.mark.parametrize("limit", [0, 100, 4096])
def test_a_write_that_fails_half_way(shelf: Shelf, python: Python, limit: int) -> None:
    """For everybody: no file may pass a size, so the copy fails at the first, or in the weights."""
    root = shelf.publisher.root
    (root / "keyring.json").write_bytes(shelf.publisher.keyring.serialise())
    shelf.install("1.0.0")
    shelf.publisher.sign(rows("2.0.0"), "new", weights__big_bin=bytes(10_000))
    assert "can't be changed: File too large" in python.run(FULL, root, str(limit))
    assert (shelf.versions(), shelf.leftovers()) == (["1.0.0*"], [])


@pytest.mark.parametrize("scenario", ["install", "update", "reactivate", "heal", "remove"])
def test_killed_at_any_step(publisher: Publisher, python: Python, scenario: str) -> None:
    for folder, version in (("one", "1.0.0"), ("two", "2.0.0"), ("three", "3.0.0")):
        publisher.sign(rows(version), folder)
    (publisher.root / "keyring.json").write_bytes(publisher.keyring.serialise())
    driver = Path(__file__).with_name("store_driver.py")
    lines = [json.loads(x) for x in python.run(driver, publisher.root, scenario).splitlines()]
    *crashes, finished = lines
    one, two = ("1.0.0", ["1.0.0"]), ("2.0.0", ["1.0.0", "2.0.0"])
    old, new = {
        "install": ((None, []), one),
        "update": (one, two),
        "reactivate": (two, ("1.0.0", two[1])),
        "heal": (one, one),
        "remove": (two, one),
    }[scenario]
    assert len(crashes) >= 3
    assert all(line["killed"] for line in crashes)
    states = [(line["active"].get("acme/rows"), line["versions"]) for line in lines]
    assert states[0] == old
    assert states[-1] == new
    # Never neither, and never back.
    assert states == [old] * states.count(old) + [new] * states.count(new) or old == new
    for line in lines:
        assert line["swept"], line
        assert line["after"]["active"] == {"acme/rows": "3.0.0"}
        if scenario != "heal":  # there the old state was a damaged copy
            assert (line["broken"], line["after"]["broken"]) == ([], [])
    assert finished["broken"] == []


INSTALL = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from edge_agent.bundles import open_bundle
from edge_agent.model_store import ModelStore
from edge_signing.keyring import Keyring
from edge_signing.trust import Purpose
root = Path(sys.argv[1])
keyring = Keyring.parse((root / "keyring.json").read_bytes())
now = datetime(2026, 6, 1, tzinfo=UTC)
check = lambda folder: open_bundle(folder, keyring, now, Purpose.LOAD).verified.close()
for name in sys.argv[2:]:
    with open_bundle(root / name, keyring, now, Purpose.INSTALL) as bundle:
        ModelStore(root / "state").install(bundle, "now", check)
"""


def test_two_processes_install_at_once(shelf: Shelf, python: Python) -> None:
    root = shelf.publisher.root
    (root / "keyring.json").write_bytes(shelf.publisher.keyring.serialise())
    numbers = range(1, 9)
    for number in numbers:
        shelf.publisher.sign(rows(f"{number}.0.0"), f"b{number}")
    processes = [
        python.start(INSTALL, root, *(f"b{n}" for n in order))
        for order in (numbers, [*reversed(numbers)])
    ]
    for process in processes:
        with process:
            assert process.communicate(timeout=50) == ("", "")
    assert sorted(v.strip("*") for v in shelf.versions()) == [f"{n}.0.0" for n in numbers]
    assert shelf.leftovers() == []
    for installed in shelf.store.list()["acme/rows"].bundles:
        shelf.publisher.check(shelf.root / "bundles" / installed.digest[7:])


def test_a_lock_that_is_never_freed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.install("1.0.0")
    monkeypatch.setattr(model_store, "_LOCK_TIMEOUT_S", 0.0)
    lock = os.open(shelf.root / "lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="somebody else has been changing the store"):
            shelf.install("2.0.0")
        assert shelf.versions() == ["1.0.0*"]  # reading needs no lock
    finally:
        os.close(lock)
    assert shelf.install("2.0.0")
