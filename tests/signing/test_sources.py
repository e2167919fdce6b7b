"""One suite for every source, then what only folders can do wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import edge_signing
from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable
from edge_signing.limits import Limits
from edge_signing.oci import OciTarSource
from edge_signing.oci_writing import write_oci_tar
from edge_signing.sources import BundleSource, DirectorySource, MemorySource, open_source

if TYPE_CHECKING:
    from tests.signing.conftest import Workshop

FILES = {
    "a.txt": b"text",
    "a/b": b"",
    "a/c/d.bin": bytes(range(256)) * 5000,
    "same": b"text",
    "é.json": b"{}",
    f"signatures/{'0' * 64}.sigstore.json": b"not parsed here",
}
SORTED = ["a/b", "a/c/d.bin", "a.txt", "same", f"signatures/{'0' * 64}.sigstore.json", "é.json"]


@pytest.fixture(params=["folder", "tar", "memory"])
def source(request: pytest.FixtureRequest, workshop: Workshop) -> Iterator[BundleSource]:
    made: BundleSource
    if request.param == "memory":
        made = MemorySource(FILES)
    else:
        folder = workshop.write(FILES)
        made = open_source(folder if request.param == "folder" else workshop.tar(folder))
    with made:
        yield made


def test_names_are_complete_and_sorted(source: BundleSource) -> None:
    assert source.names() == SORTED
    assert source.location


def test_sizes_and_bytes(source: BundleSource) -> None:
    for name, data in FILES.items():
        assert source.size(name) == len(data)
        with source.open(name) as stream:
            assert stream.read() == data
            assert stream.read() == b""


def test_streams_are_seekable_and_independent(source: BundleSource) -> None:
    data = FILES["a/c/d.bin"]
    with source.open("a/c/d.bin") as one, source.open("a/c/d.bin") as other:
        assert one.seekable()
        assert one.seek(1000) == 1000
        assert one.read(10) == data[1000:1010]
        assert other.read(10) == data[:10]
        assert one.seek(-5, os.SEEK_END) == len(data) - 5
        assert one.read(100) == data[-5:]
        assert one.seek(len(data) + 100) == len(data) + 100
        assert one.read(1) == b""
        one.seek(3)
        one.seek(4, os.SEEK_CUR)
        assert one.tell() == 7
        assert one.read() == data[7:]


def test_a_stream_outlives_its_source(source: BundleSource) -> None:
    with source.open("a/c/d.bin") as stream:
        source.close()
        source.close()
        assert stream.read() == FILES["a/c/d.bin"]


@pytest.mark.parametrize("name", ["missing", "a/missing", "missing/a"])
def test_a_missing_file(source: BundleSource, name: str) -> None:
    for method in (source.open, source.size):
        # In a folder it may have been there; an archive's list does not change.
        with pytest.raises((BundleChanged, BundleUnreadable)) as caught:
            method(name)
        assert isinstance(caught.value, BundleUnreadable) == isinstance(source, DirectorySource)
        assert caught.value.path == name


@pytest.mark.parametrize("name", ["", "..", "../bundle/same", "/etc/passwd", "a", "a/../same"])
def test_names_that_lead_elsewhere(source: BundleSource, name: str) -> None:
    with pytest.raises(BundleInvalid):
        source.open(name)


def test_memory_checks_names() -> None:
    with pytest.raises(BundleInvalid):
        MemorySource({"../x": b""}).names()


def test_a_closed_folder_reads_nothing(workshop: Workshop) -> None:
    source = DirectorySource(workshop.write(FILES))
    source.close()
    with pytest.raises(BundleUnreadable):
        source.open("same")
    with pytest.raises(BundleUnreadable):
        source.names()


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # socket paths are short
        server.bind(path.name)


SPECIAL: dict[str, Callable[[Path], object]] = {
    "link to a file inside": lambda path: path.symlink_to("same"),
    "link to a file outside": lambda path: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a folder inside": lambda path: path.symlink_to("a"),
    "link to a folder outside": lambda path: path.symlink_to("/etc"),
    "link to the parent": lambda path: path.symlink_to(".."),
    "FIFO": lambda path: os.mkfifo(path),
    "socket": make_socket,
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
@pytest.mark.parametrize("where", ["x", "a/c/x", "signatures/x"])
def test_special_files_are_refused(
    workshop: Workshop, make: Callable[[Path], object], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workshop.write(FILES)
    monkeypatch.chdir(folder)
    make(folder / where)
    with DirectorySource(folder) as source:
        with pytest.raises(BundleInvalid) as caught:
            source.names()
        assert caught.value.path == where
        with pytest.raises(BundleInvalid):
            source.open(where)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_devices_are_refused(workshop: Workshop) -> None:
    folder = workshop.write(FILES)
    try:
        os.mknod(folder / "zero", 0o020666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("no device nodes in this container")
    with DirectorySource(folder) as source, pytest.raises(BundleInvalid):
        source.names()


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL.keys())
@pytest.mark.parametrize("swapped", ["same", "a/c/d.bin", "a/c", "a"])
def test_what_is_swapped_in_later_is_refused(
    workshop: Workshop,
    make: Callable[[Path], object],
    swapped: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = workshop.write(FILES)
    outside = workshop.write({"d.bin": b"evil", "c/d.bin": b"evil"}, "outside")
    monkeypatch.chdir(folder)
    with DirectorySource(folder) as source:
        names = source.names()
        (folder / swapped).rename(workshop.root / "away")
        make(folder / swapped)
        for name in names:
            if name == swapped or name.startswith(swapped + "/"):
                with pytest.raises(BundleInvalid):
                    source.open(name)
    assert outside.exists()


def test_a_folder_swapped_for_a_link_to_a_copy_is_refused(workshop: Workshop) -> None:
    folder = workshop.write(FILES)
    with DirectorySource(folder) as source:
        (folder / "a").rename(workshop.root / "away")
        (folder / "a").symlink_to("../away")
        with pytest.raises(BundleInvalid, match="link"):
            source.open("a/c/d.bin")


def test_the_folder_itself_stays_the_one_that_was_opened(workshop: Workshop) -> None:
    folder = workshop.write(FILES)
    (workshop.root / "link").symlink_to("bundle")
    with DirectorySource(workshop.root / "link") as source:
        folder.rename(workshop.root / "away")
        workshop.write({"same": b"evil"})
        with source.open("same") as stream:
            assert stream.read() == b"text"


@pytest.mark.parametrize(
    "name",
    [
        b"a\\b",
        b"a\nb",
        b"a\x1b[2J",
        "e\u0301".encode(),
        b"\xff",
        b"x" * 255 + b"/" + b"y" * 255 + b"/z",
    ],
)
def test_names_on_disk_are_checked(workshop: Workshop, name: bytes) -> None:
    folder = workshop.write(FILES)
    target = folder / os.fsdecode(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"")
    with DirectorySource(folder) as source, pytest.raises(BundleInvalid) as caught:
        source.names()
    str(caught.value).encode()


def test_names_are_utf_8_whatever_the_locale_says(workshop: Workshop) -> None:
    workshop.write({"model.yaml": b"x", "café/naïve.png": b"y"})
    code = r"""
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from edge_signing.bundle import sign_directory, verify
from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring
from edge_signing.sources import open_source
from edge_signing.trust import Purpose

assert sys.getfilesystemencoding() == "ascii", sys.getfilesystemencoding()
key = PrivateKey(bytes(32))
sign_directory("bundle", "acme/det", key)
ring = Keyring().with_key(key.public).with_rule("acme/*", [key.public.keyid], 1)
for place in ("bundle", "a.tar", "copy"):
    with verify(open_source(place), ring, datetime.now(UTC), Purpose.INSTALL) as bundle:
        assert bundle.read("caf\u00e9/na\u00efve.png", 9) == b"y"
        if place == "bundle":
            bundle.pack("a.tar")
            bundle.copy_to("copy")
Path(os.fsdecode(b"bundle/\xff")).write_bytes(b"")
try:
    open_source("bundle").names()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=workshop.root,
        env={
            "LC_ALL": "C",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONPATH": str(Path(str(edge_signing.__file__)).parent.parent),
        },
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"BundleInvalid" in done.stdout
    assert b"not UTF-8" in done.stdout
    assert (workshop.root / "copy" / "café" / "naïve.png").read_bytes() == b"y"


def test_caps_count_folders_too(workshop: Workshop) -> None:
    folder = workshop.write({f"f{i}": b"" for i in range(9)})
    limits = Limits(files=4, signature_files=0)
    with (
        DirectorySource(folder, limits) as source,
        pytest.raises(BundleInvalid, match="more than 4"),
    ):
        source.names()
    folders = workshop.root / "folders"
    for i in range(9):
        (folders / f"d{i}").mkdir(parents=True)
    with DirectorySource(folders, limits) as source, pytest.raises(BundleInvalid):
        source.names()


@pytest.mark.parametrize("kind", ["missing", "FIFO", "empty", "text", "gzip", "NUL", "zeroes"])
def test_what_is_no_bundle_at_all(workshop: Workshop, kind: str) -> None:
    path: Path | str = workshop.root / "x"
    assert isinstance(path, Path)
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "NUL":
        path = "a\0b"
    elif kind != "missing":
        content = {"empty": b"", "text": b"hello" * 300, "gzip": b"\x1f\x8b" + bytes(1000)}
        path.write_bytes(content.get(kind, bytes(10240)))
    with pytest.raises(BundleUnreadable):
        open_source(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(workshop: Workshop) -> None:
    folder = workshop.write(FILES)
    (folder / "same").chmod(0)
    with DirectorySource(folder) as source, pytest.raises(BundleUnreadable):
        source.open("same")
    (folder / "a").chmod(0)
    with DirectorySource(folder) as source, pytest.raises(BundleUnreadable):
        source.names()
    (folder / "a").chmod(0o700)


def test_no_descriptor_leaks(workshop: Workshop) -> None:
    folder = workshop.write(FILES)
    tar = workshop.tar(folder)
    (folder / "link").symlink_to("same")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (folder, tar):
        with open_source(path) as source:
            for name in ("same", "a/c/d.bin", "missing", "a/missing", "link", "a"):
                try:
                    source.open(name).close()
                    source.size(name)
                except (BundleInvalid, BundleUnreadable):
                    continue
            try:
                source.names()
            except BundleInvalid:
                continue
    (workshop.root / "bad.tar").write_bytes(tar.read_bytes()[:700])
    with pytest.raises(BundleUnreadable):
        OciTarSource(workshop.root / "bad.tar")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_archive_is_reproducible(workshop: Workshop) -> None:
    one = workshop.write(FILES, "one")
    two = workshop.write(dict(reversed(FILES.items())), "two")
    (two / "same").chmod(0o600)
    os.utime(two / "same", (1, 1))
    digests = []
    for number, folder in enumerate((one, two)):
        with DirectorySource(folder) as source:
            digests.append(write_oci_tar(source, workshop.root / f"{number}.tar"))
    assert digests[0] == digests[1]
    assert (workshop.root / "0.tar").read_bytes() == (workshop.root / "1.tar").read_bytes()
    with OciTarSource(workshop.root / "0.tar") as packed:
        write_oci_tar(packed, workshop.root / "2.tar")
    assert (workshop.root / "0.tar").read_bytes() == (workshop.root / "2.tar").read_bytes()


@pytest.mark.parametrize("name", ["a.txt", "folder/b.txt"])
def test_closed_by_another_thread_meanwhile_it_closes_nobody_elses_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The number of the folder that was closed comes back with the next file that is opened."""
    (tmp_path / "folder").mkdir()
    for one in ("a.txt", "folder/b.txt"):
        (tmp_path / one).write_bytes(b"x")
    source = DirectorySource(tmp_path)
    real = os.open
    others: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> int:
        if not others:
            source.close()
            others.append(real(tmp_path / "a.txt", os.O_RDONLY))
        return real(*arguments, **options)

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises((BundleUnreadable, BundleInvalid)):
        source.open(name)
    os.fstat(others[0])
    os.close(others[0])
