"""Signing and verifying: every attack is a row."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import onnx
import pytest
from onnx import TensorProto, helper

from edge_signing.bundle import sign_directory, verify
from edge_signing.envelope import parse_envelope, seal
from edge_signing.errors import (
    BundleChanged,
    BundleInvalid,
    BundleUnreadable,
    NotTrusted,
    SigningError,
)
from edge_signing.keyring import Keyring
from edge_signing.keys import PrivateKey
from edge_signing.limits import Limits
from edge_signing.manifest import bundle_digest, parse_statement
from edge_signing.sources import BundleSource, DirectorySource, MemorySource, open_source
from edge_signing.trust import Purpose

if TYPE_CHECKING:
    from tests.signing.conftest import Crashes, Workshop

STRANGER = PrivateKey(b"\x63" * 32)


@pytest.mark.parametrize("form", ["folder", "tar", "memory"])
@pytest.mark.parametrize("purpose", Purpose)
def test_what_was_signed_is_verified(workshop: Workshop, form: str, purpose: Purpose) -> None:
    folder = workshop.signed(workshop.alice, workshop.bob)
    forms: dict[str, Callable[[], Path | dict[str, bytes]]] = {
        "folder": lambda: folder,
        "tar": lambda: workshop.tar(folder),
        "memory": lambda: workshop.contents(folder),
    }
    keyring = workshop.keyring(workshop.alice, workshop.bob, threshold=2)
    with workshop.verify(forms[form](), keyring, purpose) as bundle:
        assert bundle.name == "acme/det"
        assert bundle.verdict.trusted
        assert set(bundle.verdict.signers) == {
            workshop.alice.public.keyid,
            workshop.bob.public.keyid,
        }
        assert bundle.digest == bundle_digest(bundle.statement)
        assert parse_statement(bundle.statement) == bundle.manifest
        assert bundle.names() == [
            "labels.json",
            "model.yaml",
            "weights/deep/part.bin",
            "weights/model.bin",
        ]


def test_signing_says_what_it_did(workshop: Workshop, bundle_files: dict[str, bytes]) -> None:
    folder = workshop.write(bundle_files)
    seen: list[tuple[int, int]] = []
    result = sign_directory(
        folder, "acme/det", workshop.alice, progress=lambda *step: seen.append(step)
    )
    total = sum(map(len, bundle_files.values()))
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert result.keyid == workshop.alice.public.keyid
    assert result.file == str(folder / workshop.signature_name(workshop.alice))
    envelope = parse_envelope(Path(result.file).read_bytes())
    assert result.digest == bundle_digest(envelope.payload)
    again = sign_directory(folder, "acme/det", workshop.alice)
    assert again == result


# --- attacks on the content ----------------------------------------------------------------------

Attack = Callable[[dict[str, bytes]], object]


def rename(old: str, new: str) -> Attack:
    return lambda files: files.update({new: files.pop(old)})


def swap(one: str, other: str) -> Attack:
    return lambda files: files.update({one: files[other], other: files[one]})


def flip(name: str, position: int) -> Attack:
    def change(files: dict[str, bytes]) -> None:
        data = bytearray(files[name])
        data[position] ^= 1
        files[name] = bytes(data)

    return change


CONTENT: dict[str, tuple[Attack, type[SigningError], str]] = {
    "flip first bit": (flip("weights/model.bin", 0), BundleChanged, "weights/model.bin"),
    "flip last bit": (flip("weights/model.bin", -1), BundleChanged, "weights/model.bin"),
    "truncate": (lambda f: f.update({"model.yaml": b"name"}), BundleChanged, "model.yaml"),
    "append": (
        lambda f: f.update({"model.yaml": f["model.yaml"] + b"\0"}), BundleChanged, "model.yaml",
    ),
    "empty": (lambda f: f.update({"model.yaml": b""}), BundleChanged, "model.yaml"),
    "swap contents": (swap("model.yaml", "labels.json"), BundleChanged, "labels.json"),
    "add": (lambda f: f.update({"evil.wasm": b"x"}), BundleInvalid, "evil.wasm"),
    "add hidden": (lambda f: f.update({".hidden": b""}), BundleInvalid, ".hidden"),
    "add in a folder": (lambda f: f.update({"weights/x": b""}), BundleInvalid, "weights/x"),
    "remove": (lambda f: f.pop("labels.json"), BundleInvalid, "labels.json"),
    "rename": (rename("labels.json", "labels2.json"), BundleInvalid, "labels.json"),
    "re-case": (rename("labels.json", "Labels.json"), BundleInvalid, "labels.json"),
    "re-case a folder": (
        rename("weights/model.bin", "Weights/model.bin"), BundleInvalid, "weights/model.bin",
    ),
    "add other case": (lambda f: f.update({"MODEL.yaml": b""}), BundleInvalid, "MODEL.yaml"),
    "move": (rename("weights/model.bin", "model.bin"), BundleInvalid, "weights/model.bin"),
    "add absolute": (lambda f: f.update({"/etc/passwd": b""}), BundleInvalid, "/etc/passwd"),
    "add parent": (lambda f: f.update({"../x": b""}), BundleInvalid, "../x"),
    "add NFD": (lambda f: f.update({"e\u0301": b""}), BundleInvalid, "e\u0301"),
    "stray in signatures": (
        lambda f: f.update({"signatures/evil.so": b""}), BundleInvalid, "signatures/evil.so",
    ),
    "stray below signatures": (
        lambda f: f.update({f"signatures/x/{'0' * 64}.sigstore.json": b""}), BundleInvalid,
        f"signatures/x/{'0' * 64}.sigstore.json",
    ),
    "Signatures": (lambda f: f.update({"Signatures/x": b""}), BundleInvalid, "Signatures/x"),
}  # fmt: skip


@pytest.mark.parametrize(("attack", "error", "place"), CONTENT.values(), ids=CONTENT.keys())
@pytest.mark.parametrize("purpose", Purpose)
def test_changed_content_is_refused(
    workshop: Workshop, attack: Attack, error: type[SigningError], place: str, purpose: Purpose
) -> None:
    files = workshop.contents(workshop.signed())
    attack(files)
    with pytest.raises(error) as caught:
        workshop.verify(files, purpose=purpose)
    assert caught.value.path == place


# --- attacks on the signatures -------------------------------------------------------------------


def resign(edit: Callable[[dict[str, Any]], object], key: PrivateKey) -> Attack:
    """What a trusted key signed, changed, under a signature of some key."""

    def change(files: dict[str, bytes]) -> None:
        (name,) = [name for name in files if name.startswith("signatures/")]
        statement = json.loads(parse_envelope(files[name]).payload)
        edit(statement)
        files[name] = seal(json.dumps(statement).encode(), key)

    return change


def edit_envelope(edit: Callable[[dict[str, Any]], object]) -> Attack:
    def change(files: dict[str, bytes]) -> None:
        (name,) = [name for name in files if name.startswith("signatures/")]
        document = json.loads(files[name])
        edit(document)
        files[name] = json.dumps(document).encode()

    return change


def replace_signatures(data: bytes | None) -> Attack:
    def change(files: dict[str, bytes]) -> None:
        for name in [name for name in files if name.startswith("signatures/")]:
            if data is None:
                del files[name]
            else:
                files[name] = data

    return change


def other_signature(name: str, data: bytes) -> Attack:
    return lambda files: files.update({f"signatures/{name}.sigstore.json": data})


ALICE = PrivateKey(b"\x01" * 32)  # as in the workshop
SIGNATURES: dict[str, tuple[Attack, type[SigningError], str]] = {
    "none": (replace_signatures(None), NotTrusted, "not signed"),
    "empty": (replace_signatures(b""), BundleInvalid, "not JSON"),
    "deep": (replace_signatures(b"[" * 100_000), BundleInvalid, "too many values"),
    "large": (replace_signatures(b" " * (3 * 1024 * 1024 + 1)), BundleInvalid, "more than"),
    "by a stranger": (resign(lambda s: None, STRANGER), NotTrusted, "no key of the keyring"),
    "by a stranger, hint of Alice": (
        edit_envelope(lambda d: d["dsseEnvelope"]["signatures"][0].update(
            sig=json.loads(seal(b"x", STRANGER))["dsseEnvelope"]["signatures"][0]["sig"]
        )), NotTrusted, "no key of the keyring",
    ),
    "of another payload": (
        edit_envelope(lambda d: d["dsseEnvelope"].update(payload="QUJD")),
        NotTrusted, "no key of the keyring",
    ),
    "two payloads": (
        other_signature("0" * 64, seal(b"other", STRANGER)), BundleInvalid, "different",
    ),
    "second is rubbish": (other_signature("0" * 64, b"rubbish"), BundleInvalid, "not JSON"),
    "misnamed": (
        lambda f: f.update({"signatures/x.sigstore.json": b""}), BundleInvalid, "may hold only",
    ),
    "65 files": (
        lambda f: f.update({f"signatures/{i:064}.sigstore.json": b"" for i in range(64)}),
        BundleInvalid, "more than 64",
    ),
    "signed rubbish": (replace_signatures(seal(b"rubbish", ALICE)), BundleInvalid, "not JSON"),
    "signed nesting": (replace_signatures(seal(b"[" * 100_000, ALICE)), BundleInvalid, "deep"),
    "signed other name": (
        resign(lambda s: s["subject"][0].update(name="evil/det"), ALICE), NotTrusted, "no rule",
    ),
    "signed bad name": (
        resign(lambda s: s["subject"][0].update(name="../det"), ALICE),
        BundleInvalid, "bundle name",
    ),
    "signed traversal": (
        resign(lambda s: s["predicate"]["resources"][0].update(name="../../etc/passwd"), ALICE),
        BundleInvalid, "not allowed",
    ),
    "signed absolute": (
        resign(lambda s: s["predicate"]["resources"][0].update(name="/etc/passwd"), ALICE),
        BundleInvalid, "absolute",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("attack", "error", "words"), SIGNATURES.values(), ids=SIGNATURES.keys())
def test_changed_signatures_are_refused(
    workshop: Workshop, attack: Attack, error: type[SigningError], words: str
) -> None:
    files = workshop.contents(workshop.signed())
    attack(files)
    with pytest.raises(error, match=words):
        workshop.verify(files)


@pytest.mark.parametrize("hint", ["", "0" * 64, STRANGER.public.keyid, "é", "\x1b[2J"])
def test_a_wrong_hint_changes_nothing(workshop: Workshop, hint: str) -> None:
    files = workshop.contents(workshop.signed())
    edit_envelope(lambda d: d["verificationMaterial"]["publicKey"].update(hint=hint))(files)
    workshop.verify(files, workshop.keyring(workshop.bob, workshop.alice)).close()


def test_signatures_of_strangers_beside_a_good_one_do_no_harm(workshop: Workshop) -> None:
    folder = workshop.signed(workshop.alice, STRANGER)
    with workshop.verify(folder) as bundle:
        assert bundle.verdict.signers == (workshop.alice.public.keyid,)


def test_one_key_in_two_files_counts_once(workshop: Workshop) -> None:
    files = workshop.contents(workshop.signed())
    files[workshop.signature_name(workshop.bob)] = files[workshop.signature_name(workshop.alice)]
    keyring = workshop.keyring(workshop.alice, workshop.bob, threshold=2)
    with pytest.raises(NotTrusted, match="1 of 2 needed"):
        workshop.verify(files, keyring)
    edited = json.loads(files[workshop.signature_name(workshop.bob)])
    edited["verificationMaterial"]["publicKey"]["hint"] = workshop.bob.public.keyid
    files[workshop.signature_name(workshop.bob)] = json.dumps(edited).encode()
    with pytest.raises(NotTrusted, match="1 of 2 needed"):
        workshop.verify(files, keyring)


def test_too_many_junk_signatures_end_the_work(workshop: Workshop) -> None:
    files = workshop.contents(workshop.signed(STRANGER))
    keyring = workshop.keyring(workshop.alice, workshop.bob)
    source = MemorySource(files)
    limits = Limits(signature_check_bytes=20_000)
    with pytest.raises(BundleInvalid, match="too many signatures"):
        verify(source, keyring, workshop.now, Purpose.INSTALL, limits=limits)


def test_the_payload_is_decoded_once(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, bundle_files: dict[str, bytes]
) -> None:
    from edge_signing.strict_json import decode_base64

    keys = [PrivateKey(bytes([n + 1]) * 32) for n in range(64)]
    statement = statement_over(bundle_files)
    files = bundle_files | {workshop.signature_name(key): seal(statement, key) for key in keys}
    decoded: list[object] = []

    def decode(text: object) -> bytes:
        decoded.append(text)
        return decode_base64(text)

    monkeypatch.setattr("edge_signing.envelope.decode_base64", decode)
    workshop.verify(files).close()
    assert len([text for text in decoded if len(str(text)) > 100]) == 1


def test_junk_signatures_cost_little(workshop: Workshop, bundle_files: dict[str, bytes]) -> None:
    """64 of the largest that are allowed took ten seconds of processor time."""
    keys = [PrivateKey(bytes([n + 100]) * 32) for n in range(64)]
    keyring = workshop.keyring(*(PrivateKey(bytes([n + 1]) * 32) for n in range(30)))
    for payload in (b"x" * 2_350_000, b"x" * 780_000, b"x"):
        sealed = {workshop.signature_name(key): seal(payload, key) for key in keys}
        start = time.process_time()
        with pytest.raises(SigningError):
            workshop.verify(bundle_files | sealed, keyring)
        assert time.process_time() - start < 3  # 0.5 on a free machine


def test_signing_refuses_what_verification_would(
    workshop: Workshop, bundle_files: dict[str, bytes]
) -> None:
    folder = workshop.write(bundle_files)
    for limits in (Limits(signature_file_bytes=1000), Limits(signatures_bytes=1000)):
        with pytest.raises(BundleInvalid):
            sign_directory(folder, "acme/det", workshop.alice, limits=limits)
        assert not list(folder.glob("signatures/*"))
    one = len((workshop.signed() / workshop.signature_name(workshop.alice)).read_bytes())
    limits = Limits(signatures_bytes=2 * one - 1)
    sign_directory(folder, "acme/det", workshop.alice, limits=limits)
    with pytest.raises(BundleInvalid, match="bytes of signatures"):
        sign_directory(folder, "acme/det", workshop.bob, limits=limits)


# --- verdicts ------------------------------------------------------------------------------------


def expired(workshop: Workshop) -> Keyring:
    return workshop.keyring().with_key(workshop.alice.public, expires=workshop.now - timedelta(1))


KEYRINGS: dict[str, tuple[Callable[[Workshop], Keyring], bool, bool]] = {
    "trusted": (lambda w: w.keyring(), True, True),
    "empty": (lambda w: Keyring(), False, False),
    "other key": (lambda w: w.keyring(w.bob), False, False),
    "other name": (lambda w: w.keyring(pattern="evil/*"), False, False),
    "star does not cross": (lambda w: w.keyring(pattern="*"), False, False),
    "expired": (expired, False, True),
    "revoked": (lambda w: w.keyring().revoke(w.alice.public, w.now), False, False),
    "revoked in future": (
        lambda w: w.keyring().revoke(w.alice.public, w.now + timedelta(1)), False, False,
    ),
    "too few": (lambda w: w.keyring(w.alice, w.bob, threshold=2), False, False),
    "first rule says no": (lambda w: w.keyring().with_rule("*/det", []), False, False),
    "later rule says no": (lambda w: w.keyring().with_rule("*/det", [], first=False), True, True),
    "key without rule": (lambda w: Keyring().with_key(w.alice.public), False, False),
}  # fmt: skip


class Watched(MemorySource):
    """Notes which files were opened."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.opened: list[str] = []

    def open(self, name: str) -> BinaryIO:
        self.opened.append(name)
        return super().open(name)


@pytest.mark.parametrize(("make", "install", "load"), KEYRINGS.values(), ids=KEYRINGS.keys())
def test_the_keyring_decides_and_a_no_costs_no_hashing(
    workshop: Workshop, make: Callable[[Workshop], Keyring], install: bool, load: bool
) -> None:
    files = workshop.contents(workshop.signed())
    for purpose, trusted in ((Purpose.INSTALL, install), (Purpose.LOAD, load)):
        source = Watched(files)
        if trusted:
            workshop.verify(source, make(workshop), purpose).close()
        else:
            with pytest.raises(NotTrusted):
                workshop.verify(source, make(workshop), purpose)
            assert all(name.startswith("signatures/") for name in source.opened)


def test_a_bundle_without_signature_is_refused_before_anything_is_read(workshop: Workshop) -> None:
    source = Watched({"model.yaml": b""})
    with pytest.raises(NotTrusted, match="not signed"):
        workshop.verify(source)
    assert source.opened == []


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [
        Limits(files=3),
        Limits(total_bytes=100),
        Limits(signature_files=0),
        Limits(signature_file_bytes=10),
    ],
)
def test_limits_hold_for_signing_and_verifying(workshop: Workshop, limits: Limits) -> None:
    folder = workshop.signed()
    for source in (open_source(folder), MemorySource(workshop.contents(folder))):
        with source, pytest.raises(BundleInvalid, match="more than"):
            verify(source, workshop.keyring(), workshop.now, Purpose.INSTALL, limits=limits)
    with pytest.raises(BundleInvalid, match="more than"):
        sign_directory(folder, "acme/det", workshop.alice, limits=limits)


def test_no_more_signatures_than_allowed(workshop: Workshop) -> None:
    folder = workshop.signed(workshop.alice)
    with pytest.raises(BundleInvalid, match="already"):
        sign_directory(folder, "acme/det", workshop.bob, limits=Limits(signature_files=1))
    sign_directory(folder, "acme/det", workshop.alice, limits=Limits(signature_files=1))


# --- signing refuses what verifying would --------------------------------------------------------


def stray_signature(folder: Path) -> None:
    (folder / "signatures").mkdir()
    (folder / "signatures" / "x").touch()


UNSIGNABLE: dict[str, Callable[[Path], object]] = {
    "link": lambda folder: (folder / "x").symlink_to("model.yaml"),
    "link to a folder": lambda folder: (folder / "x").symlink_to("weights"),
    "FIFO": lambda folder: os.mkfifo(folder / "x"),
    "case clash": lambda folder: (folder / "Model.yaml").write_bytes(b""),
    "folder case clash": lambda folder: shutil.copytree(folder / "weights", folder / "WEIGHTS"),
    "git": lambda folder: (folder / ".gitignore").write_bytes(b""),
    "backslash": lambda folder: (folder / "a\\b").write_bytes(b""),
    "NFD": lambda folder: (folder / "e\u0301").write_bytes(b""),
    "signatures is a file": lambda folder: (folder / "signatures").write_bytes(b""),
    "signatures is a link": lambda folder: (folder / "signatures").symlink_to("weights"),
    "stray signature": stray_signature,
}  # fmt: skip


@pytest.mark.parametrize("spoil", UNSIGNABLE.values(), ids=UNSIGNABLE.keys())
def test_unsignable_folders(
    workshop: Workshop, bundle_files: dict[str, bytes], spoil: Callable[[Path], object]
) -> None:
    folder = workshop.write(bundle_files)
    spoil(folder)
    with pytest.raises(BundleInvalid):
        sign_directory(folder, "acme/det", workshop.alice, replace=True)
    assert not list(folder.glob("signatures/*.json"))


@pytest.mark.parametrize("name", ["", "Acme/det", "acme//det", "../det", "acme/det/"])
def test_unsignable_names(workshop: Workshop, name: str, bundle_files: dict[str, bytes]) -> None:
    with pytest.raises(BundleInvalid, match="bundle name"):
        sign_directory(workshop.write(bundle_files), name, workshop.alice)


def test_an_empty_or_missing_folder(workshop: Workshop) -> None:
    (workshop.root / "empty").mkdir()
    with pytest.raises(BundleInvalid, match="no files"):
        sign_directory(workshop.root / "empty", "acme/det", workshop.alice)
    with pytest.raises(BundleUnreadable):
        sign_directory(workshop.root / "missing", "acme/det", workshop.alice)


# --- signing again -------------------------------------------------------------------------------


def test_another_key_signs_beside(workshop: Workshop) -> None:
    folder = workshop.signed(workshop.alice)
    before = (folder / workshop.signature_name(workshop.alice)).read_bytes()
    sign_directory(folder, "acme/det", workshop.bob)
    assert (folder / workshop.signature_name(workshop.alice)).read_bytes() == before
    assert len(list((folder / "signatures").iterdir())) == 2


@pytest.mark.parametrize("change", ["content", "name", "damaged signature"])
@pytest.mark.parametrize("same_key", [False, True])
def test_stale_signatures_are_refused_or_replaced(
    workshop: Workshop, change: str, same_key: bool
) -> None:
    folder = workshop.signed(workshop.alice, workshop.carol)
    key = workshop.alice if same_key else workshop.bob
    name = "acme/det2" if change == "name" else "acme/det"
    if change == "content":
        (folder / "model.yaml").write_bytes(b"new")
    if change == "damaged signature":
        (folder / workshop.signature_name(workshop.alice)).write_bytes(b"rubbish")
    before = workshop.contents(folder)
    with pytest.raises(BundleChanged, match="changed since it was signed"):
        sign_directory(folder, name, key)
    assert workshop.contents(folder) == before
    sign_directory(folder, name, key, replace=True)
    left = {path.name.split(".")[0] for path in (folder / "signatures").iterdir()}
    kept = {workshop.carol.public.keyid} if change == "damaged signature" else set()
    assert left == {key.public.keyid} | kept
    workshop.verify(folder, workshop.keyring(key)).close()


# --- killed while signing ------------------------------------------------------------------------


def sign(folder: Path, key: PrivateKey, name: str = "acme/det") -> Callable[[], object]:
    return lambda: sign_directory(folder, name, key, replace=True)


class Trial:
    """A bundle to be signed, in a state to begin from, and what verification says of it."""

    def __init__(self, workshop: Workshop, *signers: PrivateKey, files: dict[str, bytes]) -> None:
        self.workshop = workshop
        self.keyring = workshop.keyring(workshop.alice, workshop.bob)
        self.folder = workshop.root / "shelf" / "bundle"
        self.origin = workshop.signed(*signers, files=files, folder="origin")
        if not signers:
            shutil.rmtree(self.origin / "signatures")

    def reset(self) -> None:
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        shutil.copytree(self.origin, self.folder)

    def verdict(self) -> object:
        try:
            with self.workshop.verify(self.folder, self.keyring) as bundle:
                return bundle.digest, sorted(bundle.verdict.signers)
        except NotTrusted:
            return "no"
        except BundleInvalid as error:
            return str(error)

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.parent.rglob(".*")]


@pytest.mark.parametrize(
    ("signers", "signer", "changed", "name"),
    [
        ("", "alice", False, "acme/det"),
        ("alice", "alice", False, "acme/det"),
        ("alice", "bob", False, "acme/det"),
        ("alice", "alice", True, "acme/det"),
        ("alice", "bob", True, "acme/det"),
        ("alice", "alice", False, "acme/det2"),
        ("alice", "bob", False, "acme/det2"),
        ("alice bob carol", "alice", True, "acme/det"),
        ("alice bob carol", "bob", False, "acme/det2"),
    ],
)
def test_killed_while_signing(
    workshop: Workshop,
    crashes: Crashes,
    bundle_files: dict[str, bytes],
    signers: str,
    signer: str,
    changed: bool,
    name: str,
) -> None:
    keys = [getattr(workshop, one) for one in signers.split()]
    trial = Trial(workshop, *keys, files=bundle_files)
    if changed:
        (trial.origin / "labels.json").write_bytes(b"[]")
    action = sign(trial.folder, getattr(workshop, signer), name)
    trial.reset()
    before = trial.verdict()
    action()
    after = trial.verdict()
    assert before != after or signers == signer
    # Which of several signatures over one manifest are still there may differ in between.
    allowed = {str(before), str(after)} if len(keys) < 2 else None
    for _ in crashes(trial.reset, action):
        seen = trial.verdict()
        assert allowed is None or str(seen) in allowed
        assert "different manifests" not in str(seen)
        assert "may hold only" not in str(seen)
        action()
        assert trial.verdict() == after
        assert trial.leftovers() == []


def test_killed_while_signing_where_the_parent_is_another_file_system(
    workshop: Workshop,
    crashes: Crashes,
    bundle_files: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.replace

    def replace(source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    trial = Trial(workshop, workshop.alice, files=bundle_files)
    (trial.origin / "labels.json").write_bytes(b"[]")
    seen = []
    for _ in crashes(trial.reset, sign(trial.folder, workshop.bob)):
        seen.append(str(trial.verdict()))
        sign(trial.folder, workshop.carol)()
        sign(trial.folder, workshop.alice)()
        assert len(list((trial.folder / "signatures").iterdir())) in (2, 3)
        workshop.verify(trial.folder).close()
    # There, a crash may leave a file that verification refuses, until somebody signs again.
    assert any("may hold only" in one for one in seen)


def test_signing_removes_what_a_crash_left(workshop: Workshop) -> None:
    folder = workshop.signed()
    left = folder / "signatures" / f".{'0' * 40}.{'1' * 16}.tmp"
    left.write_bytes(b"half")
    with pytest.raises(BundleInvalid, match="may hold only"):
        workshop.verify(folder)
    sign_directory(folder, "acme/det", workshop.bob)
    assert not left.exists()
    workshop.verify(folder).close()


def test_signing_removes_nothing_behind_a_link(workshop: Workshop) -> None:
    folder = workshop.signed()
    (folder / "signatures").rename(workshop.root / "elsewhere")
    (folder / "signatures").symlink_to("../elsewhere")
    left = workshop.root / "elsewhere" / f".{'0' * 40}.{'1' * 16}.tmp"
    left.write_bytes(b"half")
    with pytest.raises(BundleInvalid, match="link"):
        sign_directory(folder, "acme/det", workshop.bob)
    assert left.exists()


# --- external data -------------------------------------------------------------------------------


def onnx_model(location: str, nested: bool) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    graph = helper.make_graph([], "g", [], [], [tensor])
    if nested:
        graph = helper.make_graph([helper.make_node("If", [], [], then_branch=graph)], "o", [], [])
    made: onnx.ModelProto = helper.make_model(graph)
    return bytes(made.SerializeToString())


LOCATIONS = {
    "beside": ("w.bin", True),
    "below": ("deep/w.bin", True),
    "missing": ("other.bin", False),
    "in the parent": ("../model.yaml", False),
    "absolute": ("/etc/passwd", False),
    "in signatures": ("../signatures/x", False),
    "other case": ("W.bin", False),
    "with dot": ("./w.bin", False),
    "none": ("", False),
}


@pytest.mark.parametrize(("location", "good"), LOCATIONS.values(), ids=LOCATIONS.keys())
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", ["weights/m.onnx", "weights/M.ONNX"])
def test_external_data_must_be_in_the_bundle(
    workshop: Workshop, location: str, good: bool, nested: bool, name: str
) -> None:
    files = {
        name: onnx_model(location, nested),
        "weights/w.bin": b"1234",
        "weights/deep/w.bin": b"1234",
        "model.yaml": b"",
    }
    folder = workshop.write(files)
    if good:
        sign_directory(folder, "acme/det", workshop.alice)
        workshop.verify(folder).close()
        return
    with pytest.raises(BundleInvalid) as caught:
        sign_directory(folder, "acme/det", workshop.alice)
    assert caught.value.path == name
    # A publisher with another tool could have signed it.
    hidden = workshop.write({n.replace(name, "m.bin"): d for n, d in files.items()}, "hidden")
    sign_directory(hidden, "acme/det", workshop.alice)
    contents = workshop.contents(hidden)
    contents[name] = contents.pop("m.bin")
    resources = sorted(
        (["model.yaml", "weights/w.bin", "weights/deep/w.bin", name]), key=lambda n: n.split("/")
    )
    statement = statement_over({n: contents[n] for n in resources})
    contents[workshop.signature_name(workshop.alice)] = seal(statement, workshop.alice)
    with pytest.raises(BundleInvalid) as caught:
        workshop.verify(contents)
    assert caught.value.path == name


def statement_over(files: dict[str, bytes]) -> bytes:
    from edge_signing.digest import sha256_hex
    from edge_signing.manifest import Resource, build_statement

    return build_statement("acme/det", [Resource(n, sha256_hex(d)) for n, d in files.items()])


def test_a_damaged_onnx_file_is_named(workshop: Workshop) -> None:
    folder = workshop.write({"m.onnx": b"not protobuf", "model.yaml": b""})
    with pytest.raises(BundleInvalid, match="damaged") as caught:
        sign_directory(folder, "acme/det", workshop.alice)
    assert caught.value.path == "m.onnx"


# --- between listing and reading -----------------------------------------------------------------


class Treacherous(MemorySource):
    """Gives other bytes from the second opening of a file on, or fails."""

    def __init__(
        self, files: dict[str, bytes], action: Callable[[bytes], bytes], after: int
    ) -> None:
        super().__init__(files)
        self._action = action
        self._left = after

    def open(self, name: str) -> BinaryIO:
        stream = super().open(name)
        if name != "weights/model.bin":
            return stream
        self._left -= 1
        if self._left >= 0:
            return stream
        return MemorySource({name: self._action(stream.read())}).open(name)


def fail(data: bytes) -> bytes:
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("action", [lambda d: d[:-1], lambda d: d + b"x", lambda d: b"x" + d[1:]])
def test_bytes_that_change_before_hashing(
    workshop: Workshop, action: Callable[[bytes], bytes]
) -> None:
    files = workshop.contents(workshop.signed())
    with pytest.raises(BundleChanged):
        workshop.verify(Treacherous(files, action, 0))


def test_a_failing_disk_is_unreadable_and_not_invalid(workshop: Workshop) -> None:
    files = workshop.contents(workshop.signed())
    with pytest.raises(BundleUnreadable, match="Input/output"):
        workshop.verify(Treacherous(files, fail, 0))


@pytest.mark.parametrize("victim", ["weights/model.bin", "weights", "signature", "signatures"])
def test_what_vanishes_while_it_is_read_is_unreadable(workshop: Workshop, victim: str) -> None:
    """As when another process removes the model: no tampering."""

    class Vanishing(DirectorySource):
        def names(self) -> list[str]:
            listed = super().names()
            path = folder / victim
            if victim == "signature":
                path = folder / workshop.signature_name(workshop.alice)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            return listed

    folder = workshop.signed()
    with pytest.raises(BundleUnreadable, match="has gone"):
        workshop.verify(Vanishing(folder))


@pytest.mark.parametrize("removed", ["before listing", "half", "renamed"])
def test_a_folder_that_is_removed_while_it_is_read_is_unreadable(
    workshop: Workshop, removed: str
) -> None:
    folder = workshop.signed()
    with DirectorySource(folder) as source:
        if removed == "renamed":
            (folder / "model.yaml").unlink()
            folder.rename(workshop.root / "away")
        elif removed == "before listing":
            shutil.rmtree(folder)
        else:
            listed = source.names()
            shutil.rmtree(folder)
            source.names = lambda: listed[1:]  # type: ignore[method-assign]
        with pytest.raises(BundleUnreadable):
            workshop.verify(source)


def test_a_file_that_is_missing_in_a_folder_that_is_there_is_invalid(workshop: Workshop) -> None:
    folder = workshop.signed()
    (folder / "model.yaml").unlink()
    with pytest.raises(BundleInvalid, match="missing"):
        workshop.verify(folder)


def test_progress_covers_every_byte(workshop: Workshop, bundle_files: dict[str, bytes]) -> None:
    folder = workshop.signed()
    seen: list[tuple[int, int]] = []
    source: BundleSource = open_source(folder)
    with verify(
        source, workshop.keyring(), workshop.now, Purpose.LOAD, lambda *step: seen.append(step)
    ):
        total = sum(map(len, bundle_files.values()))
        assert seen[-1] == (total, total)
        assert seen == sorted(seen)
