"""Hostile archives: made with the standard library's tarfile, so not with our own writer."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge_signing.errors import BundleChanged, BundleInvalid, BundleUnreadable, SigningError
from edge_signing.limits import Limits
from edge_signing.oci import OciTarSource
from edge_signing.oci_manifest import MANIFEST_TYPE, Layer, build_oci_manifest, parse_oci_manifest
from edge_signing.oci_writing import write_oci_tar
from edge_signing.sources import MemorySource
from edge_signing.tar import header, members, padding

if TYPE_CHECKING:
    from tests.signing.conftest import Workshop

BLOBS = "blobs/sha256/"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Archive:
    """An archive whose parts a test spoils before it is written."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.blobs = {sha(data): data for data in [*files.values(), b"{}"]}
        layers = [Layer(name, sha(data), len(data)) for name, data in files.items()]
        self.manifest: dict[str, Any] = json.loads(build_oci_manifest(layers))
        self.index: dict[str, Any] = {"schemaVersion": 2, "manifests": []}
        self.layout: dict[str, Any] = {"imageLayoutVersion": "1.0.0"}
        self.extra: list[tuple[tarfile.TarInfo, bytes]] = []
        self.drop: set[str] = set()
        self.raw_manifest: bytes | None = None
        self.raw_index: bytes | None = None
        self.list_manifest = True
        self.entry: dict[str, Any] = {}

    def entries(self) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
        manifest = self.raw_manifest or json.dumps(self.manifest).encode()
        if self.list_manifest:
            entry = {
                "mediaType": MANIFEST_TYPE,
                "digest": "sha256:" + sha(manifest),
                "size": len(manifest),
                **self.entry,
            }
            self.index["manifests"].append(entry)
        index = self.raw_index or json.dumps(self.index).encode()
        yield folder("blobs"), b""
        yield folder("blobs/sha256"), b""
        yield from (
            (tarfile.TarInfo(name), data)
            for name, data in [
                ("oci-layout", json.dumps(self.layout).encode()),
                ("index.json", index),
                *((BLOBS + digest, data) for digest, data in self.blobs.items()),
                (BLOBS + sha(manifest), manifest),
            ]
            if name not in self.drop
        )
        yield from self.extra

    def write(self, path: Path, form: int = tarfile.USTAR_FORMAT) -> Path:
        with tarfile.open(path, "w", format=form) as tar:
            for info, data in self.entries():
                if info.isreg():
                    info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path


def folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info, b""


@pytest.fixture
def archive() -> Archive:
    return Archive({"model.yaml": b"x: 1\n", "weights/w.bin": b"w" * 2000})


def test_an_archive_of_another_writer_is_read(archive: Archive, tmp_path: Path) -> None:
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        archive.index["manifests"].clear()
        with OciTarSource(archive.write(tmp_path / "a.tar", form)) as source:
            assert source.names() == ["model.yaml", "weights/w.bin"]
            with source.open("weights/w.bin") as stream:
                assert stream.read() == b"w" * 2000


def test_another_reader_reads_ours(tmp_path: Path) -> None:
    files = {"model.yaml": b"x", "a/é": b"y" * 1000}
    write_oci_tar(MemorySource(files), tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar") as tar:
        names = tar.getnames()
        assert names[:2] == ["oci-layout", "index.json"]
        assert names[2:] == sorted(names[2:])
        for name in names[2:]:
            member = tar.extractfile(name)
            assert member is not None
            assert BLOBS + sha(member.read()) == name
        index = json.loads(tar.extractfile("index.json").read())  # type: ignore[union-attr]
    assert index["manifests"][0]["artifactType"] == "application/vnd.edge-agent.bundle.v1"


Spoil = Callable[[Archive], object]


def add(*entry: Any) -> Spoil:
    return lambda a: a.extra.append(special(*entry))


def add_file(name: str) -> Spoil:
    return lambda a: a.extra.append((tarfile.TarInfo(name), b"evil"))


def layer(**fields: Any) -> Spoil:
    return lambda a: a.manifest["layers"][0].update(fields)


def title(name: Any) -> Spoil:
    return layer(annotations={"org.opencontainers.image.title": name})


def manifest(**fields: Any) -> Spoil:
    return lambda a: a.manifest.update(fields)


def set_attribute(name: str, value: Any) -> Spoil:
    return lambda a: setattr(a, name, value)


INVALID: dict[str, Spoil] = {
    "traversal": add_file("../evil"),
    "traversal below": add_file("blobs/sha256/../../evil"),
    "absolute": add_file("/etc/passwd"),
    "stranger": add_file("README"),
    "other algorithm": add_file("blobs/sha512/" + "a" * 64),
    "short digest": add_file(BLOBS + "a" * 63),
    "upper case digest": add_file(BLOBS + "A" * 64),
    "digest and more": add_file(BLOBS + "a" * 64 + "/x"),
    "dot prefix": add_file("./oci-layout"),
    "other folder": lambda a: a.extra.append((folder("evil"), b"")),
    "blob as folder": lambda a: a.extra.append((folder(BLOBS + "a" * 64), b"")),
    "symbolic link": add(BLOBS + "a" * 64, tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": add(BLOBS + "a" * 64, tarfile.LNKTYPE, "oci-layout"),
    "FIFO": add(BLOBS + "a" * 64, tarfile.FIFOTYPE),
    "device": add(BLOBS + "a" * 64, tarfile.CHRTYPE),
    "contiguous file": add(BLOBS + "a" * 64, tarfile.CONTTYPE),
    "unknown kind": add(BLOBS + "a" * 64, b"Z"),
    "sparse": add(BLOBS + "a" * 64, tarfile.GNUTYPE_SPARSE),
    "index twice": add_file("index.json"),
    "blob twice": lambda a: a.extra.append((tarfile.TarInfo(BLOBS + sha(b"{}")), b"{}")),
    "folder twice": lambda a: a.extra.append((folder("blobs"), b"")),
    "blob missing": lambda a: a.blobs.pop(sha(b"x: 1\n")),
    "size differs": layer(size=4),
    "size huge": layer(size=2**63),
    "size negative": layer(size=-1),
    "size true": layer(size=True),
    "size string": layer(size="5"),
    "digest missing": layer(digest=None),
    "digest of sha512": layer(digest="sha512:" + "a" * 128),
    "digest with path": layer(digest="sha256:../../etc/passwd"),
    "layer null": lambda a: a.manifest["layers"].append(None),
    "no title": layer(annotations={}),
    "annotations list": layer(annotations=[]),
    "title number": title(7),
    "title absolute": title("/etc/passwd"),
    "title traversal": title("../x"),
    "title twice": title("weights/w.bin"),
    "artifact type": manifest(artifactType="application/vnd.oci.image.config.v1+json"),
    "no artifact type": lambda a: a.manifest.pop("artifactType"),
    "schema version": manifest(schemaVersion=1),
    "layers object": manifest(layers={}),
    "config missing": manifest(config=None),
    "config not empty": manifest(config={"digest": "sha256:" + "a" * 64, "size": 2}),
    "two manifests": lambda a: a.index["manifests"].append({"digest": "sha256:" + "a" * 64}),
    "no manifest": set_attribute("list_manifest", False),
    "manifests object": set_attribute("raw_index", b'{"manifests":{}}'),
    "index not an object": set_attribute("raw_index", b"[]"),
    "index dup": set_attribute("raw_index", b'{"manifests":[],"manifests":[]}'),
    "index deep": set_attribute("raw_index", b"[" * 60_000),
    "index NaN": set_attribute("raw_index", b'{"a":NaN}'),
    "index surrogate": set_attribute("raw_index", b'{"a":"\\ud800"}'),
    "index large": set_attribute("raw_index", b'{"a":"' + b" " * 70_000 + b'"}'),
    "manifest not JSON": set_attribute("raw_manifest", b"\xff"),
    "manifest deep": set_attribute("raw_manifest", b"[" * 100_000),
    "manifest large": set_attribute("raw_manifest", b" " * (4 * 1024 * 1024 + 1)),
    "blob of nobody": add_file(BLOBS + "a" * 64),
    "index schema version": lambda a: a.index.update(schemaVersion=1),
    "index schema version not whole": lambda a: a.index.update(schemaVersion=2.0),
    "index without schema version": lambda a: a.index.pop("schemaVersion"),
    "index media type": lambda a: a.index.update(mediaType=MANIFEST_TYPE),
    "index entry of another type": set_attribute("entry", {"mediaType": "text/plain"}),
    "index entry of no type": set_attribute("entry", {"mediaType": None}),
    "manifest media type": manifest(mediaType="application/vnd.oci.image.index.v1+json"),
    "manifest without schema version": lambda a: a.manifest.pop("schemaVersion"),
    "config of another type": lambda a: a.manifest["config"].update(mediaType="text/plain"),
    "layer of another type": layer(mediaType="application/vnd.oci.image.layer.v1.tar+gzip"),
    "layer of no type": layer(mediaType=None),
    "layout version": lambda a: a.layout.update(imageLayoutVersion="2.0.0"),
}


@pytest.mark.parametrize("spoil", INVALID.values(), ids=INVALID.keys())
def test_hostile_archives(archive: Archive, tmp_path: Path, spoil: Spoil) -> None:
    spoil(archive)
    with pytest.raises(BundleInvalid):
        OciTarSource(archive.write(tmp_path / "a.tar", tarfile.GNU_FORMAT))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_by_extension_are_refused(archive: Archive, tmp_path: Path, form: int) -> None:
    archive.extra.append((tarfile.TarInfo("x" * 150), b""))
    with pytest.raises(BundleInvalid):
        OciTarSource(archive.write(tmp_path / "a.tar", form))


def test_a_pax_header_that_renames_is_refused(archive: Archive, tmp_path: Path) -> None:
    info = tarfile.TarInfo(BLOBS + "a" * 64)
    info.pax_headers = {"comment": "x"}
    archive.extra.append((info, b""))
    with pytest.raises(BundleInvalid):
        OciTarSource(archive.write(tmp_path / "a.tar", tarfile.PAX_FORMAT))


@pytest.mark.parametrize("name", ["oci-layout", "index.json"])
def test_what_every_layout_has(archive: Archive, tmp_path: Path, name: str) -> None:
    archive.drop.add(name)
    with pytest.raises(BundleUnreadable):
        OciTarSource(archive.write(tmp_path / "a.tar"))


def test_a_manifest_that_differs_from_its_digest(archive: Archive, tmp_path: Path) -> None:
    data = archive.write(tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(data.replace(b"weights/w.bin", b"weights/x.bin"))
    with pytest.raises(BundleChanged):
        OciTarSource(tmp_path / "a.tar")


def test_caps(archive: Archive, tmp_path: Path) -> None:
    path = archive.write(tmp_path / "a.tar")
    with pytest.raises(BundleInvalid, match="more than"):
        OciTarSource(path, Limits(files=1, signature_files=0))
    with pytest.raises(BundleInvalid, match="more than 1"):
        parse_oci_manifest(
            json.dumps(archive.manifest).encode(), Limits(files=1, signature_files=0)
        )


def test_truncated_anywhere(workshop: Workshop) -> None:
    data = workshop.tar(workshop.signed()).read_bytes()
    path = workshop.root / "cut.tar"
    assert len(data) > 20 * 512
    for length in [*range(0, len(data), 512), *range(100, len(data), 1024), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(BundleUnreadable):
            OciTarSource(path)
    path.write_bytes(data)
    OciTarSource(path).close()


def test_nothing_rides_along_behind_the_end(workshop: Workshop) -> None:
    path = workshop.tar(workshop.signed())
    data = path.read_bytes()
    fill = -len(data) % 10_240
    assert fill > 600
    for zeroes in (0, 1, 512, fill):
        path.write_bytes(data + bytes(zeroes))
        OciTarSource(path).close()
    for tail in (b"x", bytes(600) + b"x", bytes(fill - 1) + b"x", bytes(fill + 1), bytes(10**6)):
        path.write_bytes(data + tail)
        with pytest.raises(BundleInvalid, match="after its end"):
            OciTarSource(path)


def test_an_archive_cut_while_it_is_open(workshop: Workshop) -> None:
    path = workshop.tar(workshop.signed())
    with workshop.verify(path) as bundle:
        with path.open("r+b") as stream:
            stream.truncate(2000)
        for name in bundle.names():
            with pytest.raises(BundleChanged):
                bundle.read(name, 10**6)


@pytest.mark.parametrize(
    "size", [b"77777777777\0", b"\x80" + b"\xff" * 11, b"\x80" + bytes(3) + b"\x7f" * 8]
)
def test_a_header_that_claims_too_much(workshop: Workshop, size: bytes) -> None:
    block = bytearray(header("oci-layout", 0))
    block[124:136] = size
    assert read_headers(workshop.root / "a.tar", block) == "unreadable"


@pytest.mark.parametrize(
    "size", [b"-0000000001\0", b"0x000000001\0", b"\xff" * 12, b"           \0", b"99999999999\0"]
)
def test_a_size_that_is_no_number(workshop: Workshop, size: bytes) -> None:
    block = bytearray(header("oci-layout", 0))
    block[124:136] = size
    assert read_headers(workshop.root / "a.tar", block) == "unreadable"


@pytest.mark.parametrize("position", [0, 100, 124, 148, 257, 400, 511])
def test_a_wrong_checksum(workshop: Workshop, position: int) -> None:
    block = bytearray(header("oci-layout", 0))
    block[position] ^= 1
    assert read_headers(workshop.root / "a.tar", block, fix=False) == "unreadable"


def test_a_name_in_the_prefix_field(workshop: Workshop) -> None:
    block = bytearray(header("oci-layout", 0))
    block[345:350] = b"../.."
    assert read_headers(workshop.root / "a.tar", block) == "invalid"


def read_headers(path: Path, block: bytearray, fix: bool = True) -> str:
    if fix:
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
    path.write_bytes(bytes(block) + bytes(1024))
    with path.open("rb") as stream:
        try:
            list(members(stream.fileno(), str(path), 10))
        except BundleUnreadable:
            return "unreadable"
        except BundleInvalid:
            return "invalid"
    return "read"


def test_too_many_entries(workshop: Workshop) -> None:
    path = workshop.root / "a.tar"
    path.write_bytes(header("oci-layout", 0) * 11 + bytes(1024))
    with path.open("rb") as stream, pytest.raises(BundleInvalid, match="more than 10"):
        list(members(stream.fileno(), "x", 10))


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8**11 - 1, 8**11, 2**40])
def test_headers_agree_with_tarfile(size: int) -> None:
    info = tarfile.TarInfo.frombuf(header(BLOBS + "a" * 64, size), "ascii", "strict")
    assert (info.name, info.size, info.mode, info.mtime) == (BLOBS + "a" * 64, size, 0o644, 0)
    assert info.isreg()
    assert (size + len(padding(size))) % 512 == 0


def test_a_file_larger_than_octal_can_say(tmp_path: Path) -> None:
    size = 8**11 + 5
    path = tmp_path / "a.tar"
    with path.open("wb") as stream:
        stream.write(header("oci-layout", size))
        stream.truncate(512 + size + len(padding(size)) + 1024)  # sparse: takes no room
    with path.open("rb") as stream:
        assert [member.size for member in members(stream.fileno(), "x", 10)] == [size]


def test_a_file_that_changes_while_it_is_packed(tmp_path: Path) -> None:
    class Changing(MemorySource):
        reads = 0

        def open(self, name: str) -> Any:
            self.reads += 1
            return io.BytesIO(b"two" if self.reads > 1 else b"one")

    with pytest.raises(BundleChanged):
        write_oci_tar(Changing({"a": b"one"}), tmp_path / "a.tar")
    assert not list(tmp_path.iterdir())


def test_every_byte_of_the_headers_matters_or_is_harmless(workshop: Workshop) -> None:
    """Flipping any header bit gives the same files, or an error of ours."""
    path = workshop.tar(workshop.signed())
    data = path.read_bytes()
    with OciTarSource(path) as source:
        expected = source.names()
    for position in range(0, len(data), 37):
        changed = bytearray(data)
        changed[position] ^= 0x11
        path.write_bytes(changed)
        try:
            with OciTarSource(path) as source:
                assert source.names() == expected
        except SigningError:
            continue
