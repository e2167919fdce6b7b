"""Building in this process: what may be replaced, and what happens while it goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from edge_agent import samples
from edge_agent.app import Agent
from edge_agent.authoring.building.build import BuildRequest, build
from edge_agent.authoring.recipe import change_recipe
from edge_agent.config import AgentConfig
from edge_agent.errors import BadInputError, ConfigError, DescriptionError
from tests.agent import models


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(AgentConfig(tmp_path / "config", tmp_path / "state"), lambda text: None)


@pytest.fixture
def request_(tmp_path: Path) -> BuildRequest:
    """A project with its inputs, and where its bundle shall be; nothing is measured yet."""
    folder = tmp_path / "p"
    files = models.bundle_files(models.COLOUR) | {"model.onnx": models.colour()}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (tmp_path / "photos").mkdir()
    for index in range(2):
        (tmp_path / f"photos/{index}.png").write_bytes(models.png((0, 255, index)))
    change_recipe(folder, inputs="../photos")
    return BuildRequest(folder, tmp_path / "made" / "b", verify=False)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file()
    }


def built(agent: Agent, request: BuildRequest) -> Path:
    return build(agent, request).path


def project_(out: Path, request: BuildRequest) -> None:
    shutil.copytree(request.project, out)


def project_without_recipe(out: Path, request: BuildRequest) -> None:
    shutil.copytree(request.project, out)
    (out / "build.toml").unlink()


def thesis(out: Path, request: BuildRequest) -> None:
    out.mkdir(parents=True)
    (out / "thesis.txt").write_text("mine")


def empty_description(out: Path, request: BuildRequest) -> None:
    out.mkdir(parents=True)
    (out / "model.yaml").write_text("")
    (out / "sbom.spdx.json").write_text("{}")


def link(out: Path, request: BuildRequest) -> None:
    thesis(out.with_name("elsewhere"), request)
    out.symlink_to("elsewhere")


def file(out: Path, request: BuildRequest) -> None:
    out.parent.mkdir()
    out.write_text("mine")


def archive_of_something_else(out: Path, request: BuildRequest) -> None:
    out.parent.mkdir()
    out.with_name("b.tar").write_text("mine")


def folder_as_archive(out: Path, request: BuildRequest) -> None:
    thesis(out.with_name("b.tar"), request)


@pytest.mark.parametrize(
    "other",
    [project_, project_without_recipe, thesis, empty_description, link, file,
     archive_of_something_else, folder_as_archive],
)  # fmt: skip
def test_what_build_did_not_make_is_not_replaced(
    other: Callable[[Path, BuildRequest], None], agent: Agent, request_: BuildRequest
) -> None:
    out = request_.out
    assert out
    other(out, request_)
    before = tree(out.parent)
    for force in (True, False):
        with pytest.raises(BadInputError):
            build(agent, replace(request_, force=force))
        assert tree(out.parent) == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("b/labels.json", "was changed since"), ("b/notes.txt", "isn't what"),
        ("b/signatures/notes.txt", "isn't what"), ("b/build.toml", "is a project"),
        ("b.tar", "is no bundle's archive"),
    ],
)  # fmt: skip
def test_bundle_that_was_changed_is_not_replaced(
    changed: str, said: str, agent: Agent, request_: BuildRequest
) -> None:
    made = built(agent, request_).parent
    (made / changed).parent.mkdir(exist_ok=True)
    (made / changed).write_text("mine")
    before = tree(made)
    with pytest.raises(BadInputError, match=said):
        build(agent, replace(request_, force=True))
    assert tree(made) == before


def test_bundle_as_it_was_built_is_replaced(agent: Agent, request_: BuildRequest) -> None:
    made = built(agent, request_)
    (made / "signatures").mkdir()
    (made / "signatures/x.sigstore.json").write_text("{}")
    (request_.project / "labels.json").write_bytes(b'["rouge", "vert", "bleu"]')
    with pytest.raises(BadInputError, match="exists already"):
        build(agent, request_)
    built(agent, replace(request_, force=True))
    assert b"rouge" in (made / "labels.json").read_bytes()
    assert not (made / "signatures").exists()
    shutil.rmtree(made)
    made.mkdir()
    assert "labels.json" in tree(built(agent, replace(request_, force=True)))


@pytest.mark.parametrize("place", ["p", "p/b", ".", "p/../p"])
def test_neither_lies_in_the_other(
    place: str, agent: Agent, request_: BuildRequest, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="in the other"):
        build(agent, replace(request_, out=tmp_path / place, force=True))


def test_only_what_was_judged_gets_in(agent: Agent, request_: BuildRequest) -> None:
    right = tree(built(agent, request_))

    def change(done: int, total: int) -> None:
        for name in ("model.yaml", "labels.json", "model.onnx"):
            (request_.project / name).write_bytes(b"changed")

    request = replace(request_, out=request_.project.parent / "again", verify=True)
    made = build(agent, request, change)
    assert made.drift is None  # there is no reference
    files = tree(made.path)
    assert files.pop("reports/drift.json")
    assert files.pop("reports/drift.svg")
    assert files.pop("sbom.spdx.json") != right.pop("sbom.spdx.json")
    assert files == right


@pytest.mark.parametrize("name", ["b", "b.tar"])
@pytest.mark.parametrize("force", [True, False])
def test_what_appears_meanwhile_stays(
    name: str, force: bool, agent: Agent, request_: BuildRequest
) -> None:
    out = request_.out
    assert out

    def appear(done: int, total: int) -> None:
        if done == total:
            (out.parent / name).write_text("mine")

    with pytest.raises(BadInputError):
        build(agent, replace(request_, verify=True, force=force), appear)
    assert tree(out.parent) == {name: b"mine"}


def test_description_that_cannot_be_edited_is_told_before_the_gate(
    agent: Agent, request_: BuildRequest
) -> None:
    path = request_.project / "model.yaml"
    path.write_text(json.dumps(models.COLOUR))

    def gate(done: int, total: int) -> None:
        raise AssertionError("the gate ran")

    with pytest.raises(DescriptionError, match="can't be replaced in this style") as caught:
        build(agent, replace(request_, verify=True), gate)
    assert caught.value.path == str(path)
    assert not (path.parents[1] / "made").exists()


def test_files_behind_links_are_refused(agent: Agent, request_: BuildRequest) -> None:
    folder = request_.project
    (folder / "golden").rename(folder.parent / "elsewhere")
    (folder / "golden").symlink_to("../elsewhere")
    with pytest.raises(BadInputError, match="file-link"):
        build(agent, request_)


def test_as_many_inputs_as_model_verify_takes(
    agent: Agent, request_: BuildRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def files(contents: object, place: Path, at_most: int) -> list[Path]:
        asked.append(at_most)
        return sorted(place.iterdir())

    monkeypatch.setattr(samples, "files", files)
    told: list[tuple[int, int]] = []
    build(agent, replace(request_, verify=True), lambda done, total: told.append((done, total)))
    assert asked == [200]
    assert told[-1] == (2, 2)


def test_scaled_decoding_is_built_only_where_the_gate_saw_a_jpeg(
    agent: Agent, request_: BuildRequest, tmp_path: Path
) -> None:
    file = request_.project / "model.yaml"
    document = models.changed(models.COLOUR, "preprocess.jpeg_scaled_decoding", True)
    file.write_bytes(models.text(document))
    (tmp_path / "fp32.onnx").write_bytes(models.colour())
    measured = replace(request_, verify=True, reference=tmp_path / "fp32.onnx")
    for unmeasured in (request_, replace(measured, reference=None), measured):
        with pytest.raises(BadInputError, match="nothing measures what that does") as caught:
            build(agent, unmeasured)
        assert caught.value.path == str(file)
    build(agent, replace(request_, force=True))
    image = Image.open(tmp_path / "photos/0.png").convert("RGB")
    image.resize((64, 64)).save(tmp_path / "photos/2.jpg")
    assert build(agent, replace(measured, out=tmp_path / "c")).drift
