"""Builders that the tests of this room share."""

from __future__ import annotations

import itertools
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge_signing.bundle import VerifiedBundle, sign_directory, verify
from edge_signing.keyring import Keyring
from edge_signing.keys import PrivateKey
from edge_signing.oci_writing import write_oci_tar
from edge_signing.sources import BundleSource, DirectorySource, MemorySource, open_source
from edge_signing.trust import Purpose

FILES = {
    "model.yaml": b"name: acme/det\n",
    "labels.json": b'["cat","dog"]',
    "weights/model.bin": bytes(range(256)) * 40,
    "weights/deep/part.bin": b"part",
}
NAME = "acme/det"


class Workshop:
    """Makes folders, signs them, and judges them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = datetime(2026, 6, 1, tzinfo=UTC)
        self.alice, self.bob, self.carol = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3))

    def write(self, files: dict[str, bytes], folder: str = "bundle") -> Path:
        path = self.root / folder
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        return path

    def signed(
        self, *keys: PrivateKey, files: dict[str, bytes] | None = None, folder: str = "bundle"
    ) -> Path:
        path = self.write(FILES if files is None else files, folder)
        for key in keys or (self.alice,):
            sign_directory(path, NAME, key)
        return path

    def contents(self, folder: Path) -> dict[str, bytes]:
        with DirectorySource(folder) as source:
            return {name: (folder / name).read_bytes() for name in source.names()}

    def tar(self, folder: Path, name: str = "bundle.tar") -> Path:
        with DirectorySource(folder) as source:
            write_oci_tar(source, self.root / name)
        return self.root / name

    def keyring(self, *keys: PrivateKey, pattern: str = "acme/*", threshold: int = 1) -> Keyring:
        trusted = keys or (self.alice,)
        keyring = Keyring()
        for key in trusted:
            keyring = keyring.with_key(key.public)
        return keyring.with_rule(pattern, [key.public.keyid for key in trusted], threshold)

    def verify(
        self,
        bundle: Path | dict[str, bytes] | BundleSource,
        keyring: Keyring | None = None,
        purpose: Purpose = Purpose.INSTALL,
    ) -> VerifiedBundle:
        source: BundleSource
        if isinstance(bundle, dict):
            source = MemorySource(bundle)
        elif isinstance(bundle, Path):
            source = open_source(bundle)
        else:
            source = bundle
        try:
            return verify(source, keyring or self.keyring(), self.now, purpose)
        except BaseException:
            source.close()
            raise

    def signature_name(self, key: PrivateKey) -> str:
        return f"signatures/{key.public.keyid}.sigstore.json"


_STEPS = ("open", "fsync", "fchmod", "link", "mkdir", "rename", "replace", "rmdir", "unlink")
Crashes = Callable[[Callable[[], object], Callable[[], object]], Iterator[int]]


def _dies_at(step: int, action: Callable[[], object]) -> bool:
    """Runs an action in a child that kills itself before its n-th file-system call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # xdist has threads; the child none
        child = os.fork()
    if not child:
        result = 1
        try:
            left = itertools.count(step - 1, -1)

            def deadly(call: Callable[..., object]) -> Callable[..., object]:
                def wrapped(*arguments: object, **options: object) -> object:
                    if next(left) == 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*arguments, **options)

                return wrapped

            for name in _STEPS:
                setattr(os, name, deadly(getattr(os, name)))
            action()
            result = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(result)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.WIFSIGNALED(status)


@pytest.fixture
def crashes() -> Crashes:
    """Prepares, runs an action and kills it, for every step at which it can be killed."""

    def run(prepare: Callable[[], object], action: Callable[[], object]) -> Iterator[int]:
        for step in itertools.count(1):
            prepare()
            if not _dies_at(step, action):
                assert step > 5
                return
            yield step

    return run


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.fixture
def memory_workshop() -> Workshop:
    """For tests that must touch no disk (and for hypothesis, which shares fixtures)."""
    return Workshop(Path("/nonexistent"))


@pytest.fixture
def bundle_files() -> dict[str, bytes]:
    return dict(FILES)


@pytest.fixture
def swap_file() -> Callable[[Path, bytes], None]:
    """Replaces a file as an attacker would: another inode under the same name."""

    def swap(path: Path, data: bytes) -> None:
        other = path.with_name("other.tmp")
        other.write_bytes(data)
        other.replace(path)

    return swap
