"""Keeping an input with its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import helper

from edge_agent import golden
from edge_agent.app import Agent
from edge_agent.authoring import golden_section, project
from edge_agent.authoring.golden_input import GoldenAnswer, GoldenRequest, keep
from edge_agent.config import AgentConfig
from edge_agent.errors import BadInputError, ConfigError, TensorError
from edge_agent.types import Request
from edge_signing.durable import write_durably
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


def ask(
    agent: Agent,
    folder: Path,
    sample: Path | None = None,
    tensors: dict[str, Path] | None = None,
    **tolerances: float,
) -> GoldenAnswer:
    named = {name if name != "every" else "": value for name, value in tolerances.items()}
    return keep(agent, GoldenRequest(folder, sample, tensors or {}, named))


def test_raw_outputs_are_kept_with_their_tolerance(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    given = {"left": put(tmp_path, "l.npy", [[1, 2, 3, 4]]),
             "right": put(tmp_path, "r.npy", [[2, 2, 2, -5]])}  # fmt: skip
    kept = ask(agent, folder, tensors=given)
    assert kept.outputs["product"].tolist() == [[2, 4, 6, -20]]
    assert (kept.source, kept.tolerances, kept.wrong) == ("onnx", {"product": 0.2}, ())
    one = project.open_project(folder)
    request = golden.request(one)
    assert request
    assert request.tensors["right"].tolist() == [[2, 2, 2, -5]]
    for tolerances in ({"product": 3.0}, {"every": 3.0}, {"every": 1.0, "product": 3.0}):
        again = ask(agent, folder, None, given, **tolerances)
        assert again.tolerances == {"product": 3.0}
    assert set(one.files()) >= set(again.files)
    with pytest.raises(ConfigError, match="'score'"):
        ask(agent, folder, None, given, score=1.0)


def test_the_input_that_is_there_is_answered_anew(agent: Agent, tmp_path: Path) -> None:
    """As after quantising: the same input, the new file's answer."""
    stale = models.changed(models.PAIR, "golden.outputs.0.tolerance", 0.5)
    folder = write(tmp_path / "p", stale)
    (folder / "golden/product.npy").write_bytes(models.npy([[9, 9, 9, 9]]))
    kept = ask(agent, folder)
    assert kept.outputs["product"].tolist() == [[2, 4, 6, -4]]
    described = project.open_project(folder)
    assert golden.difference(described, (), kept.outputs) is None
    assert sorted(one.name for one in (folder / "golden").iterdir()) == [
        "input-left.npy", "input-right.npy", "output-product.npy",
    ]  # fmt: skip


def test_one_file_feeds_every_input(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    left, right = np.array([[1, 2, 3, 4]], "f4"), np.array([[3, 3, 3, 3]], "f4")
    np.savez(tmp_path / "s.npz", left=left, right=right)
    assert ask(agent, folder, tmp_path / "s.npz").outputs["product"].tolist() == [[3, 6, 9, 12]]


def test_what_feeds_too_little_or_too_much(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.PAIR)
    left = put(tmp_path, "l.npy", [[1, 2, 3, 4]])
    before = (folder / "model.yaml").read_bytes()
    for given, said in (({"left": left}, "'right'"), ({"up": left}, "'up'")):
        with pytest.raises(BadInputError, match=said):
            ask(agent, folder, None, given)
    with pytest.raises(TensorError, match="was made for"):
        far = put(tmp_path, "far.npy", [[99, 0, 0, 0]])
        ask(agent, folder, None, {"left": far, "right": left})
    assert (folder / "model.yaml").read_bytes() == before
    assert sorted(one.name for one in (folder / "golden").iterdir()) == [
        "left.npy", "product.npy", "right.npy",
    ]  # fmt: skip
    bare = write(tmp_path / "q", models.changed(models.PAIR, "golden", ...))
    with pytest.raises(BadInputError, match="has no golden input yet") as caught:
        ask(agent, bare)
    assert "--input left=FILE --input right=FILE" in (caught.value.hint or "")


def test_an_answer_that_is_no_number_is_not_kept(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    huge = put(tmp_path, "h.npy", [[1e38, 0, 0, 0]])
    ten = put(tmp_path, "t.npy", [[10, 0, 0, 0]])
    with pytest.raises(BadInputError, match="isn't finite"):
        ask(agent, folder, None, {"right": huge, "left": ten})
    assert not (folder / "golden/output-product.npy").exists()


def test_the_reference_is_held_against_it(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.COLOUR)
    (folder / "build.toml").write_text('reference = "model.onnx"\n')
    (tmp_path / "Red Car.PNG").write_bytes(models.png((255, 0, 0)))
    kept = ask(agent, folder, tmp_path / "Red Car.PNG")
    assert (kept.source, kept.labels[0].label, kept.wrong) == ("onnx", "red", ())
    section = yaml.safe_load((folder / "model.yaml").read_text())["golden"]
    assert section["image"] == "golden/red-car.png"
    assert section["top"]["tolerance"] == golden_section.SCORE_TOLERANCE
    assert not (folder / "golden/green.png").exists()
    other = models.onnx_file(
        [
            helper.make_node("Neg", ["image"], ["negative"]),
            helper.make_node("GlobalAveragePool", ["negative"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["scores"]),
        ],
        {"image": [1, 3, 8, 8]},
        {"scores": [1, 3]},
    )
    (folder / "model2.onnx").write_bytes(other)
    (folder / "build.toml").write_text('reference = "model2.onnx"\n')
    (wrong,) = ask(agent, folder).wrong
    assert wrong.startswith("the reference answers otherwise: class ")


def test_a_signed_bundle_is_left_alone(agent: Agent, tmp_path: Path) -> None:
    folder = write(tmp_path / "p", models.PAIR)
    (folder / "signatures").mkdir()
    with pytest.raises(BadInputError, match="is a signed bundle"):
        ask(agent, folder)


@pytest.mark.parametrize("link", ["golden", "golden/input-left.npy"])
def test_nothing_is_written_through_a_link(agent: Agent, tmp_path: Path, link: str) -> None:
    folder = write(tmp_path / "p", models.changed(models.PAIR, "golden", ...))
    given = {name: put(tmp_path, f"{name}.npy", [[1, 2, 3, 4]]) for name in ("left", "right")}
    outside = tmp_path / "outside"
    (folder / "golden").rename(outside) if link == "golden" else outside.write_text("mine")
    (folder / link).symlink_to(outside)
    kept = sorted(one.name for one in outside.iterdir()) if outside.is_dir() else "mine"
    with pytest.raises(BadInputError, match="is a symbolic link"):
        ask(agent, folder, None, given)
    now = sorted(one.name for one in outside.iterdir()) if outside.is_dir() else outside.read_text()
    assert now == kept


def test_a_failure_leaves_the_old_input_with_the_old_answer(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "p", models.COLOUR)
    before = {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}
    (tmp_path / "green.png").write_bytes(models.png((255, 0, 0)))  # of the name that is taken

    def fail(path: Path, data: bytes) -> None:
        if path.name == "model.yaml":
            raise OSError("the power is gone")
        write_durably(path, data)

    monkeypatch.setattr("edge_agent.authoring.golden_input.write_durably", fail)
    with pytest.raises(OSError, match="power"):
        ask(agent, folder, tmp_path / "green.png")
    assert {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()} == before


def test_whole_numbers_must_be_met() -> None:
    assert golden_section.usual_tolerance("x", np.array([900], "i8")) == 0.0
    assert golden_section.usual_tolerance("x", np.array([0.0], "f4")) == 1e-5


def test_names_that_differ_by_a_dot_get_files_of_their_own() -> None:
    section = golden_section.GoldenSection()
    array = np.zeros(1, "f4")
    section.keep_input(Request("m", "s", tensors={"a.b": array, "a-b": array}), "s")
    assert list(section.files) == ["golden/input-a-b.npy", "golden/input-a-b-2.npy"]
