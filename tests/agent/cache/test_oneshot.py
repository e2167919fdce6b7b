"""The command's cache, through the runtime, with real bundles and engines in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec import structs

from edge_agent.cache import conversion, inspection, oneshot, origin
from edge_agent.cache.oneshot import OneShotAnswers
from edge_agent.runtime import Runtime
from edge_agent.serve_config import CacheConfig
from edge_agent.types import ModelRef, Request, Result, ScoredLabel
from tests.agent import models
from tests.agent.fakes import FakeBackend

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from tests.agent.conftest import Bench, Publisher

PICTURE = models.png((0, 0, 255))


class Shot:
    """One command after another: each has answers, a runtime and engines of its own."""

    def __init__(self, bench: Bench, bundle: Bundle, file: Path) -> None:
        backend = bench.loader.backends["onnx"]
        assert isinstance(backend, FakeBackend)
        self.backend = backend
        self._bench, self._bundle, self._file = bench, bundle, file
        self.engine = "onnx"
        self.config = CacheConfig()
        self.stamp = "1"

    def __call__(self, request: Request) -> Result:
        loader = self._bench.loader
        answers = OneShotAnswers(
            self._file,
            self.config,
            lambda bundle: loader.foreseen(bundle, self.engine),
            lambda engine: origin.local(engine, self.stamp),
        )
        runtime = Runtime(
            lambda _: self._bundle, lambda bundle: loader.load(bundle, self.engine), answers
        )
        result = runtime.infer(request)
        runtime.settle()
        answers.close()
        return result


@pytest.fixture
def bench(bench: Bench) -> Bench:
    backends = {"onnx": FakeBackend(), "tflite": FakeBackend()}
    bench.loader = structs.replace(bench.loader, backends=backends)
    return bench


@pytest.fixture
def shot(bench: Bench, publisher: Publisher, file: Path) -> Shot:
    return Shot(bench, publisher.bundle(models.COLOUR), file)


def request(**more: object) -> Request:
    return structs.replace(Request("m", "a.png", PICTURE), **more)


def test_the_second_command_loads_nothing(shot: Shot) -> None:
    first = shot(request())
    loaded = len(shot.backend.loaded)
    again = shot(request(source="other.png"))
    assert (first.is_cached, again.is_cached) == (False, True)
    assert (again.labels, again.confident, again.engine) == (first.labels, True, "onnx")
    assert (again.source, again.model, again.timings_ms) == ("other.png", first.model, {})
    assert len(shot.backend.loaded) == loaded


def test_what_is_asked_otherwise_is_computed(shot: Shot) -> None:
    shot(request())
    assert not shot(request(top_k=1)).is_cached
    assert not shot(request(image=models.png((0, 255, 0)))).is_cached
    shot.stamp = "2"
    assert not shot(request()).is_cached
    shot.stamp = "1"
    assert shot(request()).is_cached
    assert inspection.look(shot._file).entries == 4


def test_raw_outputs_come_back_in_form_and_value(
    bench: Bench, publisher: Publisher, file: Path
) -> None:
    shot = Shot(bench, publisher.bundle(models.ROWS), file)
    rows = {"x": np.array([[1.5, -2.0]], "f4")}
    first, again = (shot(Request("m", "s", None, rows)) for _ in range(2))
    assert (first.is_cached, again.is_cached) == (False, True)
    assert again.outputs["y"].dtype == first.outputs["y"].dtype
    np.testing.assert_array_equal(again.outputs["y"], first.outputs["y"])
    assert (again.labels, again.confident) == ((), None)
    other = {"x": np.array([[1.5, -2.5]], "f4")}
    assert not shot(Request("m", "s", None, other)).is_cached


@pytest.mark.parametrize("dtype", ["float16", "bool", "uint8", "int64", ">f4", "<u2"])
def test_outputs_of_every_dtype(dtype: str) -> None:
    value = np.array([[1, 0, 1]]).astype(dtype)
    labels = (ScoredLabel(1, "x", 0.5),)
    given = Result("s", ModelRef("m", "1", "d"), "onnx", labels, {"y": value}, False, {"a": 1.0})
    back = conversion.result_of(conversion.answer_of(given), given.model, "onnx", "t")
    np.testing.assert_array_equal(back.outputs["y"], value)
    assert back.outputs["y"].shape == (1, 3)
    assert back.outputs["y"].dtype.name == value.dtype.name
    assert (back.labels, back.confident) == (labels, False)


def test_an_engine_that_was_never_tried_isn_t_foreseen(bench: Bench, publisher: Publisher) -> None:
    """Its golden answer comes first."""
    bundle = publisher.bundle(models.COLOUR)
    assert bench.loader.foreseen(bundle, "onnx") is None
    bench.loader.load(bundle, "onnx")
    assert bench.loader.foreseen(bundle, "onnx") == "onnx"


def test_a_bundle_without_golden_input_needs_no_trial(bench: Bench, publisher: Publisher) -> None:
    document = models.changed(models.COLOUR, "golden", None)
    bundle = publisher.bundle(document)
    assert bench.loader.foreseen(bundle, "onnx") == "onnx"


def test_an_engine_that_has_gone_answers_nothing(
    bench: Bench, publisher: Publisher, file: Path
) -> None:
    shot = Shot(bench, publisher.bundle(models.COLOUR), file)
    shot(request())
    shot.backend._version = None
    assert bench.loader.foreseen(shot._bundle, "onnx") is None


@pytest.mark.parametrize("fault", ["garbage", "locked", "folder", "public", "file"])
def test_faults_cost_the_cache_and_not_the_answer(
    fault: str, shot: Shot, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oneshot, "_BUSY_MS", 1)
    shot(request())
    other = None
    if fault == "garbage":
        file.write_bytes(b"garbage" * 1000)
    elif fault == "locked":
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")
    elif fault == "public":
        file.chmod(0o666)
    else:
        for one in file.parent.glob("cache*"):
            one.unlink()
        if fault == "folder":
            file.mkdir()
        else:
            file.symlink_to("nowhere")
    result = shot(request())
    assert result.labels[0].label == "blue"
    assert not result.is_cached
    if other is not None:
        other.close()
        assert shot(request()).is_cached
    if fault == "garbage":
        assert shot(request()).is_cached
        assert inspection.look(file).rebuilt is not None


def test_many_inputs_are_written_in_batches(shot: Shot, file: Path) -> None:
    answers = OneShotAnswers(
        file, CacheConfig(), lambda _: "onnx", lambda engine: origin.local(engine)
    )
    bundle = shot._bundle
    result = shot(request())
    for number in range(150):
        answers.keep(bundle, request(image=b"%d" % number), result)
    assert inspection.look(file).entries == 129  # two batches, and the first answer
    answers.settle()
    answers.close()
    assert inspection.look(file).entries == 151
