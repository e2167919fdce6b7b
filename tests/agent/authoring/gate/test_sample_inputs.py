"""A sample is made ready once for engines of any layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_agent.authoring.gate.sample_inputs import SampleReader
from edge_agent.bundles import Contents
from edge_agent.description import EngineFile, Layout
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request
from tests.agent import models
from tests.agent.conftest import Bench

from . import drift_models as line

LAYOUTS: tuple[Layout | None, ...] = (None, "NCHW", "NHWC")


@pytest.fixture
def contents() -> Contents:
    labels = b'["red", "green", "blue"]'
    return line.Memory(models.COLOUR, model_onnx=models.colour(), labels_json=labels)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(models.png((7, 77, 177)))
    return tmp_path / "a.png"


def test_every_layout_is_as_the_pipeline_makes_it(
    bench: Bench, contents: Contents, file: Path
) -> None:
    pipeline = bench.loader.pipeline(contents)
    request = Request("acme/colour", "a.png", image=file.read_bytes())
    for order in (LAYOUTS, LAYOUTS[::-1]):
        inputs = SampleReader(bench.loader, contents).read(file)
        for layout in order:
            (made,), (right,) = (
                one.values() for one in (inputs.of(layout), pipeline.prepare(request, layout))
            )
            assert made.flags.c_contiguous
            assert made.dtype == right.dtype
            assert np.array_equal(made, right)


def test_an_image_is_decoded_once(
    bench: Bench, contents: Contents, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Layout | None] = []
    real = Pipeline.prepare

    def prepare(self: Pipeline, request: Request, layout: Layout | None) -> object:
        made.append(layout)
        return real(self, request, layout)

    monkeypatch.setattr(Pipeline, "prepare", prepare)
    inputs = SampleReader(bench.loader, contents).read(file)
    for layout in LAYOUTS:
        inputs.of(layout)
    assert made == [None]


def test_the_names_of_the_file(bench: Bench, contents: Contents, file: Path) -> None:
    inputs = SampleReader(bench.loader, contents).read(file)
    (name,) = inputs.of(None)
    part = EngineFile(engine="onnx", file="x.onnx", layout="NHWC", inputs={name: "other"})
    fed = inputs.feed(part)
    assert list(fed) == ["other"]
    assert fed["other"].shape[-1] == 3
