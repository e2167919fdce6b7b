"""The gate on real sessions of ONNX Runtime, with answers that can be worked out by hand."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edge_agent.app import Agent
from edge_agent.authoring.gate.verification import (
    compare_layers,
    read_reference,
    require,
    verify,
)
from edge_agent.backends.base import ModelFile
from edge_agent.backends.registry import BACKENDS
from edge_agent.config import AgentConfig
from edge_agent.drift.report import DriftReport
from edge_agent.errors import (
    BadInputError,
    EngineUnavailableError,
    ModelFileError,
    ThresholdError,
)
from edge_agent.loading import ModelLoader
from tests.agent import models
from tests.agent.conftest import Bench
from tests.agent.fakes import FakeBackend

from . import drift_models as line

TFLITE = {"engine": "tflite", "file": "model.tflite"}


class Here(Agent):
    """An agent whose loader is the test's."""

    def __init__(self, loader: ModelLoader, folder: Path) -> None:
        super().__init__(AgentConfig(config_dir=folder, state_dir=folder), loader.notify)
        self.loader = loader


@pytest.fixture
def agent(bench: Bench, tmp_path: Path) -> Agent:
    return Here(bench.loader, tmp_path)


@pytest.fixture
def samples(tmp_path: Path) -> list[Path]:
    """[1 2 3 4] and half of it."""
    values = {"a.npy": [[1, 2, 3, 4]], "b.npy": [[0.5, 1, 1.5, 2]]}
    for name, value in values.items():
        (tmp_path / name).write_bytes(models.npy(value))
    return [tmp_path / name for name in values]


def contents(model: ModelFile, **changes: Any) -> line.Memory:
    document = line.LINE
    for path, value in changes.items():
        document = models.changed(document, path.replace("__", "."), value)
    return line.Memory(document, model_onnx=model.data)


def test_a_right_scale_has_no_drift(agent: Agent, samples: list[Path]) -> None:
    made = verify(agent, contents(line.quantised()), samples, line.line())
    found = made.engines[0].outputs["y"]
    assert (found.relative_l2, found.max_error, found.inputs) == (0.0, 0.0, 2)
    assert found.cosine == pytest.approx(1.0)
    assert made.ok
    require(made)


def test_a_wrong_scale_is_caught_with_its_figures(agent: Agent, samples: list[Path]) -> None:
    """[3 5 7 9] becomes [3 3 3 3], and [2 3 4 5] becomes [2 3 3 3]."""
    made = verify(agent, contents(line.quantised(line.WRONG_SCALE)), samples, line.line())
    found = made.engines[0].outputs["y"]
    assert found.relative_l2 == pytest.approx(math.sqrt((56 + 5) / (164 + 54)))
    assert found.max_error == 6.0
    cosines = 72 / (6 * math.sqrt(164)), 40 / math.sqrt(31 * 54)
    assert found.cosine == pytest.approx(sum(cosines) / 2)
    assert [one.name for one in made.engines[0].worst] == ["a.npy", "b.npy"]
    with pytest.raises(ThresholdError) as caught:
        require(made)
    assert "onnx y: relative_l2 0.529 is above 0.35" in str(caught.value)
    assert "contract.drift" in (caught.value.hint or "")
    assert "\n" not in str(caught.value)


def test_the_layer_at_fault_is_the_worst(agent: Agent, samples: list[Path]) -> None:
    wrong = contents(line.quantised(line.WRONG_SCALE))
    layers = compare_layers(agent, wrong, samples, line.line()).compared
    found = {one.name: one for one in layers}
    assert list(found) == ["doubled", "active", "y"]  # as they run
    assert found["doubled"].agreement.relative_l2 == 0.0
    worst = max(layers, key=lambda one: one.agreement.relative_l2)
    assert (worst.name, worst.operator) == ("active", "Relu")
    cut = 255 / 128
    errors = [(value - min(value, cut)) ** 2 for value in (2, 4, 6, 8, 1, 2, 3, 4)]
    assert worst.agreement.relative_l2 == pytest.approx(math.sqrt(sum(errors) / 150))
    assert worst.agreement.max_error == pytest.approx(8 - cut)
    assert worst.added == worst.agreement.relative_l2
    assert found["y"].added < 0 < found["y"].agreement.relative_l2


def test_layers_of_a_right_model_have_no_error(agent: Agent, samples: list[Path]) -> None:
    made = compare_layers(agent, contents(line.quantised()), samples, line.line())
    assert [one.agreement.relative_l2 for one in made.compared] == [0.0, 0.0, 0.0]


def test_layers_without_a_common_name_are_told_of(agent: Agent, samples: list[Path]) -> None:
    document = models.changed(line.LINE, "engines.0.outputs", {"y": "z"})
    other = line.Memory(document, model_onnx=models.onnx_file(*twice("z")))
    made = compare_layers(agent, other, samples, line.line())
    assert made.compared == ()
    assert made.notes == (
        "no layer is compared: the ONNX file has no tensor's name of the reference",
    )


def twice(output: str, shape: list[Any] | None = None) -> tuple[Any, ...]:
    from onnx import helper

    shape = shape or [1, 4]
    return [helper.make_node("Add", ["x", "x"], [output])], {"x": shape}, {output: shape}


def test_without_the_onnx_package(
    agent: Agent, samples: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    made = verify(agent, contents(line.quantised()), samples, line.line())
    assert made.ok
    assert any("steps of onnx are unknown" in note for note in made.notes)
    with pytest.raises(EngineUnavailableError) as caught:
        compare_layers(agent, contents(line.quantised()), samples, line.line())
    assert caught.value.hint == "pip install onnx"


def test_without_a_reference(agent: Agent, samples: list[Path]) -> None:
    made = verify(agent, contents(line.quantised(line.WRONG_SCALE)), samples, None)
    assert made.reference is None
    assert made.engines[0].outputs == {}
    assert made.ok is None
    require(made)
    assert any("no FP32 reference" in note for note in made.notes)


def test_nan_is_caught_without_a_reference(agent: Agent, tmp_path: Path) -> None:
    from onnx import helper

    root = models.onnx_file([helper.make_node("Sqrt", ["x"], ["y"])], {"x": [1, 4]}, {"y": [1, 4]})
    (tmp_path / "below.npy").write_bytes(models.npy([[1, 4, 9, -1]]))
    made = verify(agent, contents(ModelFile(root)), [tmp_path / "below.npy"], None)
    assert [(one.measure, one.value) for one in made.breaches] == [("not_finite", 1.0)]
    against = verify(agent, contents(ModelFile(root)), [tmp_path / "below.npy"], ModelFile(root))
    assert "relative_l2" in {one.measure for one in against.breaches}


def test_another_model_as_the_reference_drifts(agent: Agent, samples: list[Path]) -> None:
    from onnx import helper

    node = helper.make_node("Neg", ["x"], ["other"])
    other = ModelFile(models.onnx_file([node], {"x": [1, 4]}, {"other": [1, 4]}))
    made = verify(agent, contents(line.quantised()), samples, other)
    assert {one.measure for one in made.breaches} == {"relative_l2", "cosine"}
    assert made.notes == (
        "the output 'y' is 'other' in the FP32 reference: by its shape, not by name",
    )


def test_a_reference_of_another_shape_is_refused(agent: Agent, samples: list[Path]) -> None:
    other = ModelFile(models.onnx_file(*twice("y", [1, 5])))
    with pytest.raises(ModelFileError, match="the FP32 reference: doesn't fit"):
        verify(agent, contents(line.quantised()), samples, other)


def test_open_axes(agent: Agent, tmp_path: Path) -> None:
    for rows in (1, 3):
        (tmp_path / f"{rows}.npy").write_bytes(models.npy(np.ones((rows, 2))))
    files = [tmp_path / "1.npy", tmp_path / "3.npy"]
    document = line.Memory(models.ROWS, model_onnx=models.rows())
    made = verify(agent, document, files, ModelFile(models.rows()))
    assert made.engines[0].outputs["y"].inputs == 2
    assert made.ok


def test_two_inputs_under_other_names(agent: Agent, tmp_path: Path) -> None:
    left, right = (np.array([row], np.float32) for row in ([1, 2, 3, 4], [5, 6, 7, 8]))
    np.savez(tmp_path / "a.npz", left=left, right=right)
    files = {f"golden__{k}_npy": models.npy([[1, 1, 1, 1]]) for k in ("left", "right", "product")}
    document = line.Memory(models.PAIR, model_onnx=models.pair(), **files)
    made = verify(agent, document, [tmp_path / "a.npz"], ModelFile(models.pair()))
    assert made.engines[0].outputs["product"].max_error == 0.0
    assert made.engines[0].golden is None
    assert made.ok


def test_a_wrong_golden_answer_breaks_the_contract(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(models.png((9, 99, 9)))
    document = models.changed(models.COLOUR, "golden.top.index", 0)
    made = verify(
        agent,
        line.Memory(
            document,
            model_onnx=models.colour(),
            labels_json=b'["red", "green", "blue"]',
            golden__green_png=models.png((0, 255, 0)),
        ),
        [tmp_path / "a.png"],
        ModelFile(models.colour()),
    )
    assert made.breaches == ()
    with pytest.raises(
        ThresholdError, match="onnx answers the golden input wrongly: class 1"
    ) as it:
        require(made)
    assert "drifts" not in str(it.value)
    assert "edge-agent bundle golden" in (it.value.hint or "")


@pytest.mark.parametrize("data", [b"", b"nonsense", models.npy([[1, 2, 3]])])
def test_an_input_that_cannot_be_used_is_named(
    agent: Agent, samples: list[Path], data: bytes
) -> None:
    samples[1].write_bytes(data)
    with pytest.raises(BadInputError, match=r"b\.npy"):
        verify(agent, contents(line.quantised()), samples, line.line())


def test_no_input_at_all(agent: Agent) -> None:
    with pytest.raises(BadInputError, match="no input"):
        verify(agent, contents(line.quantised()), [], line.line())


def with_tflite(agent: Agent, problem: str) -> Agent:
    backends = {"onnx": BACKENDS["onnx"], "tflite": FakeBackend(problem=problem)}
    loader = ModelLoader(
        backends, agent.loader.memory, agent.loader.machine, agent.limits, 2, agent.notify
    )
    return Here(loader, agent.config.state_dir)


def test_an_engine_that_is_not_installed_is_reported(agent: Agent, samples: list[Path]) -> None:
    both = contents(line.quantised(), engines=[*line.LINE["engines"], TFLITE])
    made = verify(with_tflite(agent, "isn't installed"), both, samples, line.line())
    assert [(one.engine, one.problem) for one in made.engines] == [
        ("onnx", None),
        ("tflite", "isn't installed"),
    ]
    assert made.ok
    assert made.consistency == ()


def test_no_engine_at_all(agent: Agent, samples: list[Path]) -> None:
    only = contents(line.quantised(), engines=[TFLITE])
    with pytest.raises(EngineUnavailableError, match="tflite: isn't installed"):
        verify(with_tflite(agent, "isn't installed"), only, samples, line.line())


def test_everything_runs_on_one_thread(agent: Agent, samples: list[Path]) -> None:
    fake = FakeBackend(run=lambda inputs: {"y": np.maximum(inputs["x"] * 2, 0) + 1})
    loader = ModelLoader(
        {"onnx": fake}, agent.loader.memory, agent.loader.machine, agent.limits, 4, agent.notify
    )
    verify(Here(loader, agent.config.state_dir), contents(line.quantised()), samples, line.line())
    assert [threads for _, threads in fake.loaded] == [1, 1]  # the engine and the reference


def test_progress_counts_inputs_then_layers(agent: Agent, samples: list[Path]) -> None:
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))

    model = contents(line.quantised())
    verify(agent, model, samples, line.line(), progress)
    compare_layers(agent, model, samples, line.line(), progress)
    assert told == [(1, 2), (2, 2), (1, 2), (2, 2)]


def test_the_json_depends_on_content_alone(
    agent: Agent, samples: list[Path], tmp_path: Path
) -> None:
    def made(files: list[Path]) -> DriftReport:
        model = contents(line.quantised())
        found = compare_layers(agent, model, files, line.line())
        return verify(agent, model, files, line.line()).with_layers(found)

    first = made(samples)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = [elsewhere / one.name for one in samples]
    for old, new in zip(samples, moved, strict=True):
        new.write_bytes(old.read_bytes())
    assert made(moved).serialise() == first.serialise()
    assert str(tmp_path).encode() not in first.serialise()
    moved[0].write_bytes(models.npy([[1, 2, 3, 5]]))
    assert made(moved).inputs.digest != first.inputs.digest


def test_a_reference_is_read_with_its_data(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(line.line().data)
    assert read_reference(tmp_path / "m.onnx").data == line.line().data
    for name in ("m.tflite", "none.onnx"):
        with pytest.raises(BadInputError, match=name):
            read_reference(tmp_path / name)
    (tmp_path / "bad.onnx").write_bytes(b"\xff\xff nonsense")
    with pytest.raises(ModelFileError, match=r"bad\.onnx"):
        read_reference(tmp_path / "bad.onnx")


@pytest.mark.parametrize("scaled", [False, True])
def test_reference_sees_every_pixel_of_a_jpeg(scaled: bool, agent: Agent, tmp_path: Path) -> None:
    """So the drift of the same model shows what decoding at a part of the size does."""
    fine = np.random.default_rng(3).integers(0, 256, (67, 101, 3), np.uint8)
    Image.fromarray(fine).save(tmp_path / "a.jpg", quality=95)
    document = models.changed(models.COLOUR, "preprocess.jpeg_scaled_decoding", scaled)
    colour = line.Memory(
        models.changed(document, "golden", ...),
        model_onnx=models.colour(),
        labels_json=b'["red", "green", "blue"]',
    )
    made = verify(agent, colour, [tmp_path / "a.jpg"], ModelFile(models.colour(), {}))
    drift = made.engines[0].outputs["scores"].relative_l2
    assert (drift > 0) is scaled
