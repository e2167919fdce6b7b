"""A worker loads models, proves them, and frees them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_agent import keyrings
from edge_agent.workers.protocol import (
    Answered,
    Done,
    Failed,
    LoadModel,
    Refused,
    Report,
    RunBatch,
)
from tests.agent import models
from tests.agent.endless import endless_model

from . import child_models
from .child_driver import Child, sealed


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child() as one:
        one.ready()
        yield one


def batches(report: Report) -> bool:
    assert isinstance(report, Done) and report.loaded is not None, report
    return report.loaded.batches


def refusal(report: Report | Refused) -> tuple[str, str]:
    assert isinstance(report, Failed | Refused), report
    return report.failure.kind, report.failure.message


def test_a_model_is_loaded_and_measured(child: Child) -> None:
    report = child.load(models.COLOUR)
    assert isinstance(report, Done) and report.loaded is not None
    assert report.loaded.run_ms > 0
    assert report.loaded.engine_version.startswith("onnxruntime ")
    assert not report.loaded.batches
    assert child.probe("acme/colour") == Done(report.id + 1)


@pytest.mark.parametrize("axis", ["batch", "batch_size", "N", "n", "b"])
def test_rows_that_come_out_as_alone_run_together(child: Child, axis: str) -> None:
    assert batches(child.load(*child_models.doubling(axis)))


@pytest.mark.parametrize(
    ("document", "files"),
    [
        child_models.doubling("length"),
        child_models.centred(),
        (child_models.raw("bare", {"shape": ["N", 2]}, {"shape": ["N", 2]}),
         {"model.onnx": models.rows()}),
        (models.PAIR, {}),
    ],
    ids=["another axis", "rows that mix", "nothing to compare", "fixed axes"],
)  # fmt: skip
def test_other_rows_run_alone(child: Child, document: models.Yaml, files: dict[str, bytes]) -> None:
    assert not batches(child.load(document, files))


def test_a_wrong_golden_answer_is_refused(child: Child) -> None:
    document = models.changed(models.PAIR, "name", "acme/wrong-pair")
    report = child.load(document, {"golden/product.npy": models.npy([[2, 4, 6, 4]])})
    kind, message = refusal(report)
    assert kind == "GoldenMismatchError"
    assert "the output 'product' is off by 8" in message
    assert refusal(child.probe("acme/wrong-pair"))[0] == "ModelNotReadyError"


def test_a_file_that_the_engine_refuses(child: Child) -> None:
    kind, message = refusal(child.load(models.PAIR, {"model.onnx": b""}))
    assert kind == "ModelFileError"
    assert "ONNX Runtime refuses the model" in message


@pytest.mark.parametrize(
    ("document", "engine", "kind"),
    [
        (models.PAIR, "tflite", "EngineUnavailableError"),
        (models.changed(models.PAIR, "engines.0.file", "other.onnx"), "onnx", "ModelFileError"),
    ],
)
def test_what_the_bundle_lacks(child: Child, document: models.Yaml, engine: str, kind: str) -> None:
    assert refusal(child.load(document, engine=engine))[0] == kind


def test_external_data_that_leaves_the_bundle(child: Child) -> None:
    kind, _ = refusal(child.load(models.COLOUR, {"model.onnx": models.colour("../weights.bin")}))
    assert kind == "ModelFileError"


def test_a_description_that_is_none(child: Child) -> None:
    before = open_files(child)
    command = LoadModel(child.next_id(), "d", "n", "1.0.0", b"none", "onnx", ("a",))
    assert refusal(child.ask(command, [sealed(b"")]))[0] == "EngineFailedError"
    assert open_files(child) == before
    assert batches(child.load(*child_models.doubling()))  # and it goes on


def test_more_files_than_go_with_one_message(child: Child) -> None:
    before = open_files(child)
    document, files = child_models.doubling()
    many = {f"more/{place}": b"" for place in range(600)}
    assert batches(child.load(document, many | files))
    [outcome] = child.run("acme/doubling", child.item({"x": np.ones((1, 2), "f4")}))
    assert child.outputs(outcome)["y"].tolist() == [[2, 2]]
    assert open_files(child) == before


def test_a_model_that_takes_no_blank_input_is_loaded_all_the_same(child: Child) -> None:
    document, files = child_models.lookup()
    table = models.changed(document, "inputs.0.range", [7, 9])
    report = child.load(models.changed(table, "golden", ...), files)
    assert isinstance(report, Done) and report.loaded is not None
    assert (report.loaded.run_ms, report.loaded.batches) == (0, False)
    assert isinstance(child.probe("acme/lookup"), Done)


def test_unloading_frees_the_memory(child: Child) -> None:
    before = held_mib(child)
    assert isinstance(child.load(*child_models.heavy(64)), Done)
    assert held_mib(child) > before + 60
    assert isinstance(child.unload("acme/heavy"), Done)
    assert held_mib(child) < before + 16
    assert refusal(child.unload("acme/heavy"))[0] == "ModelNotReadyError"
    assert refusal(child.ask(RunBatch(child.next_id(), "acme/heavy", ()))) == (
        "ModelNotReadyError",
        "the worker doesn't hold the model",
    )


def test_others_are_answered_while_a_model_is_loaded() -> None:
    with Child() as child:
        child.ready()
        child.load(*child_models.doubling())
        files = models.bundle_files(models.COLOUR) | {"model.onnx": endless_model()}
        child.send(*child.loading(files, "onnx"))
        outcome = child.run("acme/doubling", child.item({"x": np.ones((1, 2), "f4")}))[0]
        assert child.outputs(outcome)["y"].tolist() == [[2, 2]]


def test_a_model_of_another_engine() -> None:
    files = {
        str(path.relative_to(keyrings.DEMO_BUNDLE)): path.read_bytes()
        for path in keyrings.DEMO_BUNDLE.rglob("*")
        if path.is_file()
    }
    with Child("tflite") as child:
        if isinstance(child.receive(), Failed):
            pytest.skip("LiteRT isn't installed")
        command, descriptors = child.loading(files, "tflite")
        assert isinstance(child.ask(command, descriptors), Done)
        photo = child.item(images=[files["golden/coffee.jpg"]], wants="labels", top_k=1)
        [outcome] = child.run(command.digest, photo)
        assert isinstance(outcome, Answered)
        assert outcome.labels[0][0].label == "espresso"


def held_mib(child: Child) -> int:
    pages = int(Path(f"/proc/{child.process.pid}/statm").read_text().split()[1])
    return pages * 4096 >> 20


def open_files(child: Child) -> int:
    return len(list(Path(f"/proc/{child.process.pid}/fd").iterdir()))
