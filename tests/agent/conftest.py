"""Signed bundles, and folders of their own, for the tests of this room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edge_agent import keyrings, model_yaml
from edge_agent.backends.registry import BACKENDS
from edge_agent.bundles import Bundle, open_bundle
from edge_agent.engine_choice import ChoiceMemory
from edge_agent.images import ImageLimits
from edge_agent.loading import ModelLoader
from edge_profiles.detect import Machine
from edge_signing.bundle import sign_directory, verify
from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring
from edge_signing.sources import DirectorySource, MemorySource
from edge_signing.trust import Purpose

from . import models

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.backends.base import Backend
    from edge_agent.description import ModelDescription

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MACHINE = Machine("riscv64", "test", None, (), 1, 512, "6.1")


class Publisher:
    """Writes, signs and opens bundles; its key is trusted with ``acme/*``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.key = PrivateKey(bytes([7]) * 32)
        ring = Keyring().with_key(self.key.public)
        self.keyring = ring.with_rule("acme/*", [self.key.public.keyid])
        self._open: list[Bundle] = []

    def sign(self, document: models.Yaml, folder: str = "bundle", **more: bytes | None) -> Path:
        """Writes a bundle and signs it; `more` are other files (``_`` for ``.``), None for none."""
        files: dict[str, bytes | None] = {**models.bundle_files(document)}
        files |= {name.replace("__", "/").replace("_", "."): data for name, data in more.items()}
        path = self.root / folder
        for name, data in files.items():
            if data is not None:
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                (path / name).write_bytes(data)
        sign_directory(path, document["name"], self.key)
        return path

    def open(self, path: Path, purpose: Purpose = Purpose.LOAD) -> Bundle:
        """Opens a bundle; the fixture closes it."""
        bundle = open_bundle(path, self.keyring, NOW, purpose)
        self._open.append(bundle)
        return bundle

    def bundle(self, document: models.Yaml, folder: str = "bundle", **more: bytes | None) -> Bundle:
        """Signs and opens a bundle."""
        return self.open(self.sign(document, folder, **more))

    def in_memory(self, path: Path) -> Bundle:
        """Opens a bundle of which no file remains on the disk that anything could open."""
        with DirectorySource(path) as source:
            files = {name: (path / name).read_bytes() for name in source.names()}
        return Bundle(verify(MemorySource(files), self.keyring, NOW, Purpose.LOAD))

    def check(self, folder: Path) -> None:
        """What the store asks of a copy."""
        open_bundle(folder, self.keyring, NOW, Purpose.LOAD).verified.close()

    def close(self) -> None:
        for bundle in self._open:
            bundle.verified.close()


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    one = Publisher(tmp_path)
    yield one
    one.close()


@pytest.fixture(scope="session")
def demo() -> ModelDescription:
    """The demo bundle's model.yaml."""
    return model_yaml.parse((keyrings.DEMO_BUNDLE / "model.yaml").read_bytes())


class Bench:
    """A loader with folders of its own, and what it told."""

    def __init__(self, state_dir: Path, backends: Mapping[str, Backend]) -> None:
        self.told: list[str] = []
        self.memory = ChoiceMemory(state_dir / "engine_choices")
        self.loader = ModelLoader(
            backends=backends,
            memory=self.memory,
            machine=lambda: MACHINE,
            limits=ImageLimits(),
            threads=1,
            notify=self.told.append,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A loader with the real engines."""
    return Bench(tmp_path / "state", BACKENDS)


class Python:
    """Runs a script in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, script: str | Path, *arguments: str | Path) -> subprocess.Popen[str]:
        code = script.read_text("utf-8") if isinstance(script, Path) else script
        quiet = {"PYTHONWARNINGS": "error", "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=self.folder,
            env=os.environ | quiet,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str | Path, *arguments: str | Path) -> str:
        """Returns what the script printed; it must succeed and say nothing else."""
        with self.start(script, *arguments) as process:
            out, err = process.communicate(timeout=50)
        assert (process.returncode, err) == (0, ""), (process.returncode, out, err)
        return out


@pytest.fixture
def python(tmp_path: Path) -> Python:
    folder = tmp_path / "empty"
    folder.mkdir()
    return Python(folder)
