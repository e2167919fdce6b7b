"""Keeping an input with its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from edge_agent import golden
from edge_agent.app import Agent
from edge_agent.authoring import golden_input, project
from edge_agent.config import AgentConfig
from edge_agent.errors import BadInputError, TensorError
from tests.agent import models


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(AgentConfig(tmp_path / "config", tmp_path / "state"), lambda text: None)


def write(folder: Path, document: models.Yaml, **more: bytes) -> Path:
    files = models.bundle_files(document) | {k.replace("_", "."): v for k, v in more.items()}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def put(folder: Path, name: str, value: Any, dtype: str = "float32") -> Path:
    (folder / name).write_bytes(models.npy(value, dtype))
    return folder / name


def test_raw_outputs_are_kept_with_their_tolerance(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    given = {"left": put(tmp_path, "l.npy", [[1, 2, 3, 4]]),
             "right": put(tmp_path, "r.npy", [[2, 2, 2, -5]])}  # fmt: skip
    kept = golden_input.keep(agent, folder, None, given, None)
    assert kept.outputs["product"].tolist() == [[2, 4, 6, -20]]
    assert (kept.source, kept.tolerances, kept.wrong) == ("onnx", {"product": 0.2}, ())
    one = project.open_project(folder)
    request = golden.request(one)
    assert request
    assert request.tensors["right"].tolist() == [[2, 2, 2, -5]]
    again = golden_input.keep(agent, folder, None, given, 3.0)
    assert again.tolerances == {"product": 3.0}
    assert set(one.files()) >= set(kept.files)


def test_what_feeds_too_little_or_too_much(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.PAIR)
    left = put(tmp_path, "l.npy", [[1, 2, 3, 4]])
    before = (folder / "model.yaml").read_bytes()
    for given, said in (({}, "'left'"), ({"left": left}, "'right'"), ({"up": left}, "'up'")):
        with pytest.raises(BadInputError, match=said):
            golden_input.keep(agent, folder, None, given, None)
    with pytest.raises(TensorError, match="was made for"):
        far = put(tmp_path, "far.npy", [[99, 0, 0, 0]])
        golden_input.keep(agent, folder, None, {"left": far, "right": left}, None)
    assert (folder / "model.yaml").read_bytes() == before
    assert sorted(one.name for one in (folder / "golden").iterdir()) == [
        "left.npy", "product.npy", "right.npy",
    ]  # fmt: skip


def test_an_answer_that_is_no_number_is_not_kept(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    huge = put(tmp_path, "h.npy", [[1e38, 0, 0, 0]])
    ten = put(tmp_path, "t.npy", [[10, 0, 0, 0]])
    with pytest.raises(BadInputError, match="isn't finite"):
        golden_input.keep(agent, folder, None, {"right": huge, "left": ten}, None)
    assert not (folder / "golden/output-product.npy").exists()


def test_the_reference_answers_where_there_is_one(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.COLOUR)
    (folder / "build.toml").write_text('reference = "model.onnx"\n')
    (tmp_path / "Red Car.PNG").write_bytes(models.png((255, 0, 0)))
    kept = golden_input.keep(agent, folder, tmp_path / "Red Car.PNG", {}, None)
    assert (kept.source, kept.labels[0].label) == ("the reference", "red")
    section = yaml.safe_load((folder / "model.yaml").read_text())["golden"]
    assert section["image"] == "golden/red-car.png"
    assert section["top"]["tolerance"] == golden_input.SCORE_TOLERANCE
    assert not (folder / "golden/green.png").exists()


def test_whole_numbers_must_be_met() -> None:
    assert golden_input._allowed("x", np.array([900], "i8")) == 0.0
    assert golden_input._allowed("x", np.array([0.0], "f4")) == 1e-5


def test_names_that_differ_by_a_dot_get_files_of_their_own() -> None:
    assert golden_input._free("golden/input-a", {}) == "golden/input-a.npy"
    assert golden_input._free("golden/input-a", {"golden/input-a.npy": b""}) == (
        "golden/input-a-2.npy"
    )
