"""The engine that serves a bundle: as measured before, or tried now in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from edge_agent.bundles import Bundle
from edge_agent.engine_choice import ChoiceMemory, Measurement
from edge_agent.errors import EngineUnavailableError, GoldenMismatchError, WorkerFailedError
from edge_agent.serving.engine_selection import EngineSelection
from edge_agent.workers.work import Loaded, ModelFiles
from tests.agent import models
from tests.agent.conftest import Publisher

BOTH: Mapping[str, str | None] = {"onnx": "1", "tflite": "2"}
TWO = models.changed(
    models.COLOUR,
    "engines",
    [{"engine": "tflite", "file": "model.tflite"}, {"engine": "onnx", "file": "model.onnx"}],
)


class Trials:
    """Takes so long on each engine, in milliseconds, or raises."""

    def __init__(self, **outcomes: float | Exception) -> None:
        self.outcomes = outcomes
        self.tried: list[str] = []

    async def __call__(self, files: ModelFiles) -> Loaded:
        self.tried.append(files.engine)
        assert all(descriptor > 2 for descriptor in files.files.values())
        outcome = self.outcomes[files.engine]
        if isinstance(outcome, Exception):
            raise outcome
        return Loaded(outcome, False, "fake 1")


def choose(
    bundle: Bundle,
    folder: Path,
    trials: Trials,
    stamps: Mapping[str, str | None] = BOTH,
    only: str | None = None,
) -> str:
    selection = EngineSelection(stamps, "machine", ChoiceMemory(folder / "choices"), trials, only)
    return asyncio.run(selection.choose(bundle)).engine


@pytest.fixture
def bundle(publisher: Publisher) -> Bundle:
    return publisher.bundle(TWO, model_tflite=b"a model")


def test_the_faster_one_serves_and_is_remembered(bundle: Bundle, tmp_path: Path) -> None:
    trials = Trials(onnx=9.0, tflite=3.0)
    assert choose(bundle, tmp_path, trials) == "tflite"
    assert trials.tried == ["onnx", "tflite"]
    again = Trials()
    assert choose(bundle, tmp_path, again) == "tflite"
    assert again.tried == []


@pytest.mark.parametrize("error", [GoldenMismatchError("wrong"), WorkerFailedError("crashed")])
def test_one_that_cannot_leaves_the_other(bundle: Bundle, tmp_path: Path, error: Exception) -> None:
    assert choose(bundle, tmp_path, Trials(onnx=error, tflite=300.0)) == "tflite"


def test_where_none_can_it_says_why_each_time(bundle: Bundle, tmp_path: Path) -> None:
    wrong = GoldenMismatchError("answers wrongly")
    trials = Trials(onnx=wrong, tflite=GoldenMismatchError("answers wrongly too"))
    for count in (1, 2):
        with pytest.raises(GoldenMismatchError, match="answers wrongly"):
            choose(bundle, tmp_path, trials)
        assert len(trials.tried) == 2 * count


def test_only_one_engine_is_tried_where_only_one_may_run(bundle: Bundle, tmp_path: Path) -> None:
    trials = Trials(onnx=9.0)
    assert choose(bundle, tmp_path, trials, only="onnx") == "onnx"
    assert trials.tried == ["onnx"]


def test_an_engine_that_is_not_installed_is_none(bundle: Bundle, tmp_path: Path) -> None:
    trials = Trials(onnx=9.0)
    assert choose(bundle, tmp_path, trials, {"onnx": "1", "tflite": None}) == "onnx"
    with pytest.raises(EngineUnavailableError, match="tflite, onnx"):
        choose(bundle, tmp_path, trials, {"onnx": None, "tflite": None})
    with pytest.raises(EngineUnavailableError):
        choose(bundle, tmp_path, trials, {"onnx": "1", "tflite": None}, only="tflite")


def test_what_was_measured_before_is_not_tried_again(bundle: Bundle, tmp_path: Path) -> None:
    memory = ChoiceMemory(tmp_path / "choices")
    memory.remember(bundle.ref.digest, "machine", [Measurement("onnx", 5.0)])
    trials = Trials(tflite=2.0)
    assert choose(bundle, tmp_path, trials) == "tflite"
    assert trials.tried == ["tflite"]


def test_the_order_decides_where_nothing_can_be_remembered(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "choices").write_text("no folder")
    assert choose(bundle, tmp_path, Trials(onnx=3.0, tflite=3.0)) == "onnx"
