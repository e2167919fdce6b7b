"""Signing a bundle that is one file: as signing its folder and packing that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_signing.bundle import sign_archive, sign_directory, verify
from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable
from edge_signing.keyring import Keyring
from edge_signing.limits import Limits
from edge_signing.manifest import bundle_digest
from edge_signing.oci_writing import write_oci_tar
from edge_signing.signing import state
from edge_signing.sources import DirectorySource, open_source
from edge_signing.trust import Purpose

from .conftest import FILES, NAME, Workshop


def pack(workshop: Workshop, files: dict[str, bytes], name: str = "unsigned") -> Path:
    folder = workshop.write(files, name)
    with DirectorySource(folder) as source:
        write_oci_tar(source, workshop.root / f"{name}.tar")
    return workshop.root / f"{name}.tar"


def signers(workshop: Workshop, path: Path, *keys: object) -> tuple[str, ...]:
    ring = Keyring()
    for key in (workshop.alice, workshop.bob):
        ring = ring.with_key(key.public)
    ring = ring.with_rule(NAME, [workshop.alice.public.keyid, workshop.bob.public.keyid])
    with verify(open_source(path), ring, workshop.now, Purpose.INSTALL) as bundle:
        return tuple(sorted(bundle.verdict.signers))


def test_it_is_the_folder_signed_and_packed(workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    one = sign_archive(archive, NAME, workshop.alice)
    folder = workshop.signed(workshop.alice)
    two = sign_directory(folder, NAME, workshop.alice)
    assert (one.digest, one.keyid) == (two.digest, two.keyid)
    with DirectorySource(folder) as source:
        assert one.digest == bundle_digest(state(source, NAME))
        write_oci_tar(source, workshop.root / "again.tar")
    assert archive.read_bytes() == (workshop.root / "again.tar").read_bytes()
    assert signers(workshop, archive) == (workshop.alice.public.keyid,)


def test_signatures_of_others_stay(workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    for key in (workshop.alice, workshop.bob, workshop.alice):
        sign_archive(archive, NAME, key)
    both = sorted([workshop.alice.public.keyid, workshop.bob.public.keyid])
    assert list(signers(workshop, archive)) == both
    with open_source(archive) as source:
        assert len(source.names()) == len(FILES) + 2


def test_signatures_over_other_files_are_refused_or_replaced(workshop: Workshop) -> None:
    folder = workshop.signed(workshop.alice)
    (folder / "labels.json").write_bytes(b'["other"]')
    archive = workshop.tar(folder)
    before = archive.read_bytes()
    with pytest.raises(BundleChanged, match="has changed since it was signed"):
        sign_archive(archive, NAME, workshop.bob)
    assert archive.read_bytes() == before
    sign_archive(archive, NAME, workshop.bob, replace=True)
    assert signers(workshop, archive) == (workshop.bob.public.keyid,)


def test_limits_and_names_hold(workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    before = archive.read_bytes()
    for limits in (Limits(total_bytes=10), Limits(files=2), Limits(signature_file_bytes=10)):
        with pytest.raises(BundleInvalid):
            sign_archive(archive, NAME, workshop.alice, limits=limits)
    with pytest.raises(BundleInvalid, match="bundle name"):
        sign_archive(archive, "Acme", workshop.alice)
    sign_archive(archive, NAME, workshop.alice)
    with pytest.raises(BundleInvalid, match="signatures already"):
        sign_archive(archive, NAME, workshop.bob, limits=Limits(signature_files=1))
    assert archive.read_bytes() != before


def test_what_is_no_archive_is_refused(workshop: Workshop) -> None:
    os.mkfifo(workshop.root / "pipe.tar")
    (workshop.root / "text.tar").write_bytes(b"text" * 400)
    for name in ("missing.tar", "pipe.tar", "text.tar", "."):
        with pytest.raises((BundleUnreadable, BundleInvalid)):
            sign_archive(workshop.root / name, NAME, workshop.alice)


def test_damaged_archive_is_not_signed(workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    data = bytearray(archive.read_bytes())
    at = data.index(FILES["labels.json"])
    data[at + 2] ^= 1
    archive.write_bytes(data)
    with pytest.raises(BundleChanged, match="differs from its digest"):
        sign_archive(archive, NAME, workshop.alice, replace=True)
    assert archive.read_bytes() == data


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_mode_and_owner_stay(mode: int, workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    archive.chmod(mode)
    if os.getuid() == 0:
        os.chown(archive, 12345, 54321)
    before = archive.stat()
    sign_archive(archive, NAME, workshop.alice)
    after = archive.stat()
    assert (after.st_mode & 0o7777, after.st_uid, after.st_gid) == (
        mode, before.st_uid, before.st_gid,
    )  # fmt: skip


def test_signers_at_once_lose_no_signature(workshop: Workshop) -> None:
    archive = pack(workshop, {**FILES, "big.bin": os.urandom(4 << 20)})
    script = (
        "import sys\nfrom edge_signing.bundle import sign_archive\n"
        "from edge_signing.ed25519 import PrivateKey\nprint('go', flush=True)\n"
        f"sys.stdin.read()\nkey = PrivateKey(bytes([int(sys.argv[2])]) * 32)\n"
        f"sign_archive(sys.argv[1], {NAME!r}, key)\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(archive), str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for number in range(1, 5)
    ]  # fmt: skip
    for child in children:
        assert child.stdout
        child.stdout.readline()
    for child in children:
        assert child.stdin
        child.stdin.close()
    for child in children:
        assert child.wait(30) == 0
        assert child.stdout
        child.stdout.close()
    with open_source(archive) as source:
        assert len(source.names()) == len(FILES) + 1 + len(children)


def test_archive_that_was_replaced_meanwhile_stays(workshop: Workshop) -> None:
    archive, other = pack(workshop, FILES), pack(workshop, FILES, "other")
    kept = other.read_bytes()

    def replace(done: int, total: int) -> None:
        if other.exists():
            other.replace(archive)

    with pytest.raises(BundleChanged, match="was replaced while it was signed"):
        sign_archive(archive, NAME, workshop.alice, progress=replace)
    assert archive.read_bytes() == kept
    assert not list(workshop.root.glob(".*"))


def test_archive_that_changes_while_it_is_signed_is_refused(workshop: Workshop) -> None:
    archive = pack(workshop, FILES)
    data = archive.read_bytes()
    changed = data.replace(FILES["labels.json"], b"#" + FILES["labels.json"][1:])
    assert changed != data

    def change(done: int, total: int) -> None:
        if done == total:
            archive.write_bytes(changed)

    with pytest.raises(BundleChanged, match="changed while it was packed"):
        sign_archive(archive, NAME, workshop.alice, progress=change)
    assert archive.read_bytes() == changed


def test_killed_while_signing_it_is_as_it_was(workshop: Workshop) -> None:
    archive = pack(workshop, {**FILES, "big.bin": os.urandom(8 << 20)})
    before = archive.read_bytes()
    script = (
        "import sys\nfrom edge_signing.bundle import sign_archive\n"
        "from edge_signing.ed25519 import PrivateKey\nprint('go', flush=True)\n"
        f"sign_archive(sys.argv[1], {NAME!r}, PrivateKey(bytes([1]) * 32))\n"
    )
    for delay in (0.0, 0.01, 0.02, 0.04, 0.06):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(archive)], stdout=subprocess.PIPE
        )
        assert child.stdout
        child.stdout.readline()
        time.sleep(delay)
        child.kill()
        child.communicate()
        with open_source(archive) as source:
            signed = len(source.names()) - len(FILES) - 1
        assert signed in (0, 1)
        archive.write_bytes(before)
