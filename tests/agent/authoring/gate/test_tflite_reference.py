"""A float TFLite file as the reference: its tensors, its layout, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge_agent import model_yaml
from edge_agent.app import Agent
from edge_agent.authoring.gate.references import fit
from edge_agent.authoring.gate.verification import read_reference, require_layers, verify
from edge_agent.backends.base import ModelFile
from edge_agent.config import AgentConfig
from edge_agent.description import EngineFile
from edge_agent.errors import BadInputError, ConfigError, ModelFileError
from tests.agent import models
from tests.agent.authoring.gate import drift_models as line
from tests.agent.backends.test_tflite import relu

ENTRY = {"engine": "tflite", "file": "m.tflite"}
NCHW = {"dtype": "float32", "layout": "NCHW"}


def fitted(data: bytes, document: models.Yaml) -> EngineFile:
    return fit(ModelFile(data), model_yaml.parse(models.text(document)))


def pictures(*shape: int, **entry: Any) -> models.Yaml:
    """A model of NCHW pictures for ONNX, or as the entry says."""
    document = models.changed(models.ROWS, "inputs", [{"name": "x", "shape": list(shape), **NCHW}])
    document = models.changed(document, "outputs", [{"name": "y", "shape": list(shape), **NCHW}])
    return models.changed(document, "engines", [entry]) if entry else document


def test_its_tensors_have_the_names_of_the_entry_for_tflite() -> None:
    names = {"inputs": {"x": "a:0"}, "outputs": {"y": "b:0"}}
    document = models.changed(models.ROWS, "engines", [ENTRY | names])
    found = fitted(relu(names=("a:0", "b:0")), document)
    assert (found.engine, found.inputs, found.outputs) == ("tflite", {"x": "a:0"}, {"y": "b:0"})


def test_names_that_nobody_knows_are_told_by_shape() -> None:
    found = fitted(relu(names=("a:0", "b:0")), models.ROWS)
    assert (found.inputs, found.outputs) == ({"x": "a:0"}, {"y": "b:0"})


def test_the_layout_is_that_of_the_entry_or_of_the_shape() -> None:
    assert fitted(relu(shape=[1, 8, 8, 3]), pictures(1, 3, 8, 8)).layout == "NHWC"
    assert fitted(relu(shape=[1, 3, 8, 8]), pictures(1, 3, 8, 8)).layout is None
    told = pictures(1, 3, 3, 3, **ENTRY, layout="NHWC")
    assert fitted(relu(shape=[1, 3, 3, 3]), told).layout == "NHWC"


def test_a_layout_that_nothing_tells_is_not_guessed() -> None:
    with pytest.raises(ModelFileError, match="shapes don't tell its layout") as caught:
        fitted(relu(shape=[1, 3, 3, 3]), pictures(1, 3, 3, 3))
    assert "an entry for tflite" in (caught.value.hint or "")


@pytest.mark.parametrize("dtype", ["INT8", "UINT8"])
def test_a_file_that_is_quantised_itself(dtype: str) -> None:
    with pytest.raises(ModelFileError, match=f"quantised itself: 'x' is {dtype.lower()}"):
        fitted(relu(dtype, quantised=(0.5, 0)), models.ROWS)


def test_answers_are_compared_with_it(tmp_path: Path) -> None:
    """The ONNX file says max(2 x, 0) + 1, the reference max(x, 0)."""
    (tmp_path / "a.npy").write_bytes(models.npy([[1, 1, 1, 1]]))
    reference = ModelFile(relu(shape=[1, 4]))
    agent = Agent(AgentConfig(config_dir=tmp_path, state_dir=tmp_path), lambda text: None)
    contents = line.Memory(line.LINE, model_onnx=line.line().data)
    made = verify(agent, contents, [tmp_path / "a.npy"], reference)
    assert made.engines[0].outputs["y"].max_error == 2.0


def test_it_is_read_as_what_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(relu())
    assert read_reference(tmp_path / "m.tflite").data == relu()
    (tmp_path / "other.tflite").write_bytes(line.line().data)
    with pytest.raises(ModelFileError, match=r"other\.tflite: is no \.tflite file by its content"):
        read_reference(tmp_path / "other.tflite")
    with pytest.raises(BadInputError, match=r"must be an \.onnx or a \.tflite file"):
        read_reference(tmp_path / "m.pb")


def test_its_layers_are_not_compared() -> None:
    with pytest.raises(ConfigError, match=r"m\.tflite: layers are compared .* ONNX") as caught:
        require_layers(ModelFile(relu()), Path("m.tflite"))
    assert "FP32.onnx" in (caught.value.hint or "")
    assert require_layers(line.line(), Path("m.onnx")) == line.line()
