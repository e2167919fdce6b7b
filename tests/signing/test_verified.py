from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest

from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable
from edge_signing.oci_writing import write_oci_tar
from edge_signing.sources import DirectorySource, MemorySource

if TYPE_CHECKING:
    from tests.signing.conftest import Crashes, Workshop

Swap = Callable[[Path, bytes], None]
FORMS = ["folder", "tar"]


def make(workshop: Workshop, form: str) -> Path:
    folder = workshop.signed(workshop.alice, workshop.bob)
    return folder if form == "folder" else workshop.tar(folder)


@pytest.mark.parametrize("form", FORMS)
def test_reading_gives_the_signed_bytes(
    workshop: Workshop, form: str, bundle_files: dict[str, bytes]
) -> None:
    with workshop.verify(make(workshop, form)) as bundle:
        for name, data in bundle_files.items():
            assert bundle.size(name) == len(data)
            assert bundle.read(name, len(data)) == data


def test_reading_is_bounded(workshop: Workshop) -> None:
    with workshop.verify(workshop.signed()) as bundle:
        with pytest.raises(BundleInvalid, match="at most 10"):
            bundle.read("weights/model.bin", 10)
        for name in ("missing", "../x", workshop.signature_name(workshop.alice)):
            for method in (lambda n: bundle.read(n, 10**6), bundle.size):
                with pytest.raises(BundleInvalid, match="no such file"):
                    method(name)


@pytest.mark.parametrize(
    "new", [b"", b"name: acme/evil", b"name: acme/det\nmore", b"name: acme/deT\n"]
)
def test_a_file_changed_after_the_check_is_never_returned(
    workshop: Workshop, new: bytes, swap_file: Swap
) -> None:
    folder = workshop.signed()
    with workshop.verify(folder) as bundle:
        swap_file(folder / "model.yaml", new)
        with pytest.raises(BundleChanged) as caught:
            bundle.read("model.yaml", 10**6)
        assert caught.value.path == "model.yaml"
        (folder / "model.yaml").write_bytes(b"name: acme/det\n")
        assert bundle.read("model.yaml", 100) == b"name: acme/det\n"


@pytest.mark.parametrize("kind", ["link", "FIFO", "gone", "folder"])
def test_a_file_swapped_for_something_else(workshop: Workshop, kind: str) -> None:
    folder = workshop.signed()
    with workshop.verify(folder) as bundle:
        (folder / "model.yaml").rename(workshop.root / "away")
        if kind == "link":
            (folder / "model.yaml").symlink_to("../away")  # even to the right bytes
        elif kind == "FIFO":
            os.mkfifo(folder / "model.yaml")
        elif kind == "folder":
            (folder / "model.yaml").mkdir()
        expected = BundleUnreadable if kind == "gone" else BundleInvalid
        with pytest.raises(expected):
            bundle.read("model.yaml", 100)
        with pytest.raises(expected):
            bundle.copy_to(workshop.root / "copy")
        with pytest.raises(expected):
            bundle.pack(workshop.root / "a.tar")
        assert not (workshop.root / "a.tar").exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("exists", [False, True])
def test_a_copy_is_complete_private_and_verifies(
    workshop: Workshop, form: str, exists: bool
) -> None:
    path = make(workshop, form)
    target = workshop.root / "copy"
    if exists:
        target.mkdir(mode=0o755)
    seen: list[tuple[int, int]] = []
    old = os.umask(0)
    try:
        with workshop.verify(path) as bundle:
            bundle.copy_to(target, lambda *step: seen.append(step))
            digest = bundle.digest
            total = sum(bundle.size(name) for name in bundle.names())
    finally:
        os.umask(old)
    assert seen[-1] == (total, total)
    assert workshop.contents(target) == workshop.contents(workshop.root / "bundle")
    for copied in [target, *target.rglob("*")]:
        mode = stat.S_IMODE(copied.lstat().st_mode)
        assert mode == (0o700 if copied.is_dir() else 0o600)
    with workshop.verify(target) as bundle:
        assert bundle.digest == digest


@pytest.mark.parametrize("victim", ["model.yaml", "weights/model.bin", "signature"])
def test_a_copy_of_changed_bytes_fails(workshop: Workshop, victim: str, swap_file: Swap) -> None:
    folder = workshop.signed()
    name = workshop.signature_name(workshop.alice) if victim == "signature" else victim
    with workshop.verify(folder) as bundle:
        data = (folder / name).read_bytes()
        swap_file(folder / name, data[:-1] + b"!")
        with pytest.raises(BundleChanged) as caught:
            bundle.copy_to(workshop.root / "copy")
        assert caught.value.path == name


def test_a_file_that_grows_without_end_is_cut(workshop: Workshop) -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = bytes(len(buffer))
            return len(buffer)

    class Growing(MemorySource):
        grown = False

        def open(self, name: str) -> BinaryIO:
            if self.grown and name != "labels.json":
                return io.BufferedReader(Endless())
            return super().open(name)

    source = Growing(workshop.contents(workshop.signed()))
    with workshop.verify(source) as bundle:
        source.grown = True
        with pytest.raises(BundleChanged):
            bundle.read("model.yaml", 10**6)
        with pytest.raises(BundleChanged):
            bundle.copy_to(workshop.root / "copy")


def test_files_added_after_the_check_are_not_copied(workshop: Workshop) -> None:
    folder = workshop.signed()
    with workshop.verify(folder) as bundle:
        (folder / "evil").write_bytes(b"")
        bundle.copy_to(workshop.root / "copy")
    assert not (workshop.root / "copy" / "evil").exists()


def test_a_folder_that_is_not_empty_is_left_alone(workshop: Workshop) -> None:
    target = workshop.write({"precious": b"1"}, "copy")
    with workshop.verify(workshop.signed()) as bundle, pytest.raises(FileExistsError):
        bundle.copy_to(target)
    assert [path.name for path in target.iterdir()] == ["precious"]


def test_a_full_disk_is_not_the_bundles_fault(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, "No space left on device")

        def fileno(self) -> int:
            return -1

    monkeypatch.setattr("edge_signing.verified._create", lambda target: Full())
    with (
        workshop.verify(workshop.signed()) as bundle,
        pytest.raises(OSError, match="No space left"),
    ):
        bundle.copy_to(workshop.root / "copy")


@pytest.mark.parametrize("form", FORMS)
def test_a_packed_bundle_is_the_same_archive_and_verifies(workshop: Workshop, form: str) -> None:
    path = make(workshop, form)
    with DirectorySource(workshop.root / "bundle") as source:
        digest = write_oci_tar(source, workshop.root / "expected.tar")
    seen: list[tuple[int, int]] = []
    with workshop.verify(path) as bundle:
        assert bundle.pack(workshop.root / "a.tar", lambda *step: seen.append(step)) == digest
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
    packed = (workshop.root / "a.tar").read_bytes()
    assert packed == (workshop.root / "expected.tar").read_bytes()
    workshop.verify(workshop.root / "a.tar").close()


class Turncoat(MemorySource):
    """Gives other bytes for one file once it is told to."""

    victim = ""
    change: Callable[[bytes], bytes]

    def open(self, name: str) -> BinaryIO:
        data = super().open(name).read()
        return io.BytesIO(self.change(data) if name == self.victim else data)

    def size(self, name: str) -> int:
        return len(self.open(name).read())


@pytest.mark.parametrize("victim", ["model.yaml", "weights/model.bin", "signature"])
@pytest.mark.parametrize(
    "change", [lambda d: b"EVIL", lambda d: d[:-1], lambda d: d + b"x", lambda d: b"!" + d[1:]]
)
def test_a_source_that_changes_after_the_verdict_is_not_packed(
    workshop: Workshop, victim: str, change: Callable[[bytes], bytes]
) -> None:
    source = Turncoat(workshop.contents(workshop.signed()))
    out = workshop.root / "out"
    out.mkdir()
    (out / "a.tar").write_bytes(b"old")
    with workshop.verify(source) as bundle:
        source.change = change
        is_signature = victim == "signature"
        source.victim = workshop.signature_name(workshop.alice) if is_signature else victim
        with pytest.raises(BundleChanged) as caught:
            bundle.pack(out / "a.tar")
        assert caught.value.path == source.victim
    assert [path.name for path in out.iterdir()] == ["a.tar"]
    assert (out / "a.tar").read_bytes() == b"old"


def test_a_path_that_leads_elsewhere_after_the_verdict(workshop: Workshop) -> None:
    good = workshop.signed()
    evil = workshop.signed(files={"model.yaml": b"evil"}, folder="evil")
    (workshop.root / "link").symlink_to(good)
    with workshop.verify(workshop.root / "link") as bundle:
        (workshop.root / "link").unlink()
        (workshop.root / "link").symlink_to(evil)
        bundle.pack(workshop.root / "a.tar")
    assert b"evil" not in (workshop.root / "a.tar").read_bytes()
    workshop.verify(workshop.root / "a.tar").close()


def test_packing_in_constant_memory(workshop: Workshop) -> None:
    import tracemalloc

    path = workshop.signed(files={"model.yaml": b"x", "large": bytes(24_000_000)})
    with workshop.verify(path) as bundle:
        tracemalloc.start()
        bundle.pack(workshop.root / "a.tar")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 6_000_000


def test_killed_while_packing(workshop: Workshop, crashes: Crashes) -> None:
    out = workshop.root / "out"
    out.mkdir()
    with workshop.verify(workshop.signed()) as bundle:
        for _ in crashes(
            lambda: (out / "a.tar").write_bytes(b"old"), lambda: bundle.pack(out / "a.tar")
        ):
            if (out / "a.tar").read_bytes() != b"old":
                workshop.verify(out / "a.tar").close()
            bundle.pack(out / "a.tar")
            assert [path.name for path in out.iterdir()] == ["a.tar"]


def test_closing_closes_the_source(workshop: Workshop) -> None:
    source = DirectorySource(workshop.signed())
    with workshop.verify(source) as bundle:
        bundle.close()
    with pytest.raises(BundleUnreadable):
        source.names()
