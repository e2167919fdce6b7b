"""Projects: what they are made of, and what is refused."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from edge_agent.authoring import project
from edge_agent.authoring.recipe import Recipe, change_recipe
from edge_agent.errors import BadInputError, ConfigError, DescriptionError, ModelNotFoundError
from tests.agent import models


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = models.bundle_files(models.COLOUR) | {"model.onnx": models.colour("w.bin")}
    for name, data in (files | {"w.bin": bytes(12)}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


def test_files_are_those_that_are_named(folder: Path) -> None:
    (folder / "LICENSE").write_text("x")
    (folder / "stray").write_text("x")
    recipe = Recipe(reference="../fp32.onnx", inputs="/photos", include=("LICENSE",))
    change_recipe(folder, reference="../fp32.onnx", inputs="/photos", include=("LICENSE",))
    one = project.open_project(folder)
    assert one.files() == [
        "LICENSE", "golden/green.png", "labels.json", "model.onnx", "model.yaml", "w.bin",
    ]  # fmt: skip
    assert one.recipe == recipe
    assert one.reference() == folder / "../fp32.onnx"
    assert one.reference(Path("mine")) == Path("mine")
    assert one.inputs() == Path("/photos")
    assert one.ref.digest == ""


@pytest.mark.parametrize("text", ["x = 1", "include = 3", "reference = ", "\udcff", "a" * 70_000])
def test_recipes_that_are_refused(text: str, folder: Path) -> None:
    (folder / "build.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError):
        project.open_project(folder)


def test_what_is_no_project(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        project.open_project(folder / "nowhere")
    assert project.is_project(folder)
    (folder / "signatures").mkdir()
    assert not project.is_project(folder)
    (folder / "model.yaml").write_text("schema: ???\n")
    with pytest.raises(DescriptionError, match="hole") as caught:
        project.open_project(folder)
    assert str(folder) in str(caught.value)


def test_links_pipes_and_ways_out_are_refused(folder: Path) -> None:
    one = project.open_project(folder)
    (folder / "link").symlink_to("labels.json")
    os.mkfifo(folder / "pipe")
    for name in ("link", "pipe", "../x", "golden", "none", "signatures/x"):
        with pytest.raises(BadInputError):
            one.read(name, 100)
    with pytest.raises(BadInputError, match="larger than 3 bytes"):
        one.read("labels.json", 3)


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "p.onnx")
    with suppress(BadInputError):
        assert project.external_names(folder / "p.onnx", "p.onnx") == set()
