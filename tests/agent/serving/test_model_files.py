"""What a worker is handed: verified bytes in memory that nobody can change."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from edge_agent.description import ModelDescription
from edge_agent.serving import model_files
from edge_signing.errors import SigningError
from tests.agent import models
from tests.agent.conftest import Publisher


def test_seals_what_one_engine_needs(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.COLOUR)
    files = model_files.seal(bundle, bundle.description.engines[0])
    try:
        assert set(files.files) == {"model.onnx", "labels.json", "golden/green.png"}
        for name, descriptor in files.files.items():
            assert os.pread(descriptor, 1 << 20, 0) == bundle.read(name, 1 << 20)
            with pytest.raises(OSError, match="not permitted"):
                os.pwrite(descriptor, b"x", 0)
            with pytest.raises(OSError, match="not permitted"):
                os.ftruncate(descriptor, 0)
        described = msgspec.msgpack.decode(files.description, type=ModelDescription)
        assert described == bundle.description
    finally:
        descriptors = list(files.files.values())
        model_files.close(files)
    for one in descriptors:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(one)


def test_external_data_goes_along(publisher: Publisher) -> None:
    weights = b"\0\0\x20\x41" * 3
    document = models.changed(models.COLOUR, "golden", ...)
    model = models.colour("factors.bin")
    bundle = publisher.bundle(
        document, golden__green_png=None, model_onnx=model, factors_bin=weights
    )
    files = model_files.seal(bundle, bundle.description.engines[0])
    try:
        assert os.pread(files.files["factors.bin"], 100, 0) == weights
    finally:
        model_files.close(files)


def test_a_file_that_changed_meanwhile_leaves_nothing_open(publisher: Publisher) -> None:
    bundle = publisher.bundle(models.COLOUR)
    (publisher.root / "bundle" / "labels.json").write_bytes(b'["red", "green", "blug"]')
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(SigningError):
        model_files.seal(bundle, bundle.description.engines[0])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
