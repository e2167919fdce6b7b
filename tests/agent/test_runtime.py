"""The one verb, from a request to a result, on real engines."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_agent.errors import ImageError, ModelNotFoundError, TensorError
from edge_agent.runtime import Later, Runtime
from edge_agent.types import ModelRef, Request

from . import models

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from edge_agent.runtime import LoadedModel

    from .conftest import Bench, Publisher


def load(bench: Bench, publisher: Publisher, document: models.Yaml) -> LoadedModel:
    return bench.loader.load(publisher.bundle(document), "auto")


def image(colour: tuple[int, int, int], top_k: int | None = None) -> Request:
    return Request("m", "a.png", models.png(colour, 20), {}, top_k)


def test_a_classifier(bench: Bench, publisher: Publisher) -> None:
    model = load(bench, publisher, models.COLOUR)
    result = model.run(image((10, 20, 250)))
    assert [(one.index, one.label) for one in result.labels] == [(2, "blue"), (1, "green")]
    assert 0.99 < result.labels[0].score <= 1
    assert result.outputs == {}
    assert (result.source, result.engine, result.confident) == ("a.png", "onnx", True)
    assert result.model == ModelRef("acme/colour", "1.0.0", model.bundle.verified.digest)
    assert list(result.timings_ms) == ["prepare", "infer", "answer"]
    assert all(ms > 0 for ms in result.timings_ms.values())


def test_how_many_classes(bench: Bench, publisher: Publisher) -> None:
    model = load(bench, publisher, models.COLOUR)
    counts = [len(model.run(image((0, 0, 0), top_k)).labels) for top_k in (None, 1, 3, 1000)]
    assert counts == [2, 1, 3, 3]


@pytest.mark.parametrize(("floor", "confident"), [(None, True), (0.3, True), (0.34, False)])
def test_confidence(
    bench: Bench, publisher: Publisher, floor: float | None, confident: bool
) -> None:
    contract = {} if floor is None else {"min_confidence": floor}
    model = load(bench, publisher, models.changed(models.COLOUR, "contract", contract))
    assert model.run(image((7, 7, 7))).confident is confident  # each class has a third


def test_raw_tensors(bench: Bench, publisher: Publisher) -> None:
    model = load(bench, publisher, models.PAIR)
    tensors = {"left": np.array([[1, 2, 3, 4]], "f4"), "right": np.array([[2, 2, 2, 2]], ">f4")}
    result = model.run(Request("m", "input", None, tensors))
    assert (result.labels, result.confident) == ((), None)
    assert result.outputs["product"].tolist() == [[2, 4, 6, 8]]


def test_any_number_of_rows_one_after_the_other(bench: Bench, publisher: Publisher) -> None:
    model = load(bench, publisher, models.ROWS)
    kept = []
    for count in (1, 5, 2, 5):
        value = np.arange(2 * count, dtype="f4").reshape(count, 2)
        kept.append((model.run(Request("m", "input", None, {"x": value})).outputs["y"], value))
    for output, value in kept:
        assert output.tolist() == (value * 2).tolist()


def test_a_bad_request_does_not_spoil_the_next(bench: Bench, publisher: Publisher) -> None:
    model = load(bench, publisher, models.COLOUR)
    for bad, error in (
        (Request("m", "s", b"text"), ImageError),
        (Request("m", "s"), TensorError),
        (Request("m", "s", None, {"image": np.zeros((1, 3, 8, 9), "f4")}), TensorError),
    ):
        with pytest.raises(error):
            model.run(bad)
        assert model.run(image((0, 255, 0))).labels[0].label == "green"


def test_each_model_is_loaded_once_when_it_is_asked_for(bench: Bench, publisher: Publisher) -> None:
    asked: list[str] = []
    bundles = {
        "colour": publisher.bundle(models.COLOUR, "one"),
        "rows": publisher.bundle(models.ROWS, "two"),
    }

    def find(name: str) -> Bundle:
        asked.append(name)
        if name not in bundles:
            raise ModelNotFoundError(name)
        return bundles[name]

    runtime = Runtime(find, lambda bundle: bench.loader.load(bundle, "auto"))
    assert asked == []
    for _ in range(2):
        answer = runtime.infer(Request("colour", "s", models.png((0, 0, 255))))
        assert answer.labels[0].label == "blue"
        rows = {"x": np.ones((1, 2), "f4")}
        assert runtime.infer(Request("rows", "s", None, rows)).model.name == "acme/rows"
    assert asked == ["colour", "rows"]
    for _ in range(2):  # it may have been installed meanwhile
        with pytest.raises(ModelNotFoundError):
            runtime.infer(Request("none", "s"))
    assert asked == ["colour", "rows", "none", "none"]


def test_work_starts_at_once_beside_the_caller() -> None:
    started, go = threading.Event(), threading.Event()

    def work() -> int:
        started.set()
        assert go.wait(30)
        return threading.get_ident()

    later = Later(work)
    assert started.wait(30)
    go.set()
    assert later.result() == later.result() != threading.get_ident()


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_what_the_work_raises_is_raised_to_everyone_who_waits(error: BaseException) -> None:
    def work() -> Any:
        raise error

    later = Later(work)
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            later.result()
        assert caught.value is error
