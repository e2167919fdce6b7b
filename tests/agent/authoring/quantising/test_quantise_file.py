"""Where a quantised model goes in its project, and what changes there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent import model_yaml
from edge_agent.authoring import recipe
from edge_agent.authoring.project import Project, open_project
from edge_agent.authoring.quantising.quantised_file import (
    Draft,
    choose_name,
    described_with,
    publish,
    require_writable,
    superseded,
)
from edge_agent.authoring.quantising.quantiser import Scheme
from edge_agent.authoring.recipe import Recipe
from edge_agent.description import EngineFile, digest_of_pipeline
from edge_agent.errors import BadInputError, ConfigError, DescriptionError
from edge_signing.durable import create_durably, write_durably

from .float_models import cnn, description

NEW = EngineFile(engine="onnx", file="weights/shapes-u8s8.onnx")
TFLITE = {"engine": "tflite", "file": "weights/shapes.tflite", "layout": "NHWC"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.yaml").write_bytes(description())
    (folder / "labels.json").write_text('["a", "b", "c", "d"]')
    (folder / "weights/shapes-fp32.onnx").write_bytes(cnn().SerializeToString())
    return open_project(folder)


def reference(project: Project) -> Path:
    return project.folder / "weights/shapes-fp32.onnx"


@pytest.mark.parametrize(
    ("stem", "scheme", "name"),
    [
        ("net-fp32", Scheme(), "weights/net-u8s8.onnx"),
        ("net.float32", Scheme("s8s8"), "weights/net-s8s8.onnx"),
        ("Net_FP32", Scheme(per_channel=False), "weights/Net-u8s8-pt.onnx"),
        ("fp32", Scheme(), "weights/fp32-u8s8.onnx"),
    ],
)
def test_the_file_is_named_after_the_reference(
    project: Project, stem: str, scheme: Scheme, name: str
) -> None:
    assert choose_name(project, Path(f"{stem}.onnx"), scheme, None) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "/etc/x.onnx", "../x.onnx", "weights/../x.onnx", "x.tflite", "labels.json",
        "signatures/x.onnx", "weights/shapes-fp32.onnx", "a\\b.onnx", ".git/x.onnx",
    ],
)  # fmt: skip
def test_other_files_of_the_project_are_not_overwritten(project: Project, name: str) -> None:
    with pytest.raises(ConfigError, match="the new file can't be"):
        choose_name(project, reference(project), Scheme(), name)


def test_a_link_to_the_reference_is_the_reference(project: Project) -> None:
    (project.folder / "weights/linked.onnx").symlink_to(reference(project))
    with pytest.raises(ConfigError):
        choose_name(project, reference(project), Scheme(), "weights/linked.onnx")


def test_what_cannot_be_written_is_known_beforehand(project: Project) -> None:
    require_writable(project, "weights/new/deep/x.onnx")
    with pytest.raises(NotADirectoryError):
        require_writable(project, "labels.json/x.onnx")


def test_a_folder_that_is_read_only(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system tells of it: root may write everywhere."""
    closed = project.folder / "weights"
    monkeypatch.setattr("os.access", lambda place, mode: Path(place) != closed)
    with pytest.raises(PermissionError, match="can't be written") as caught:
        require_writable(project, "weights/new/deep/x.onnx")
    assert caught.value.filename == str(closed)


def test_a_file_that_is_there_is_not_the_new_one(project: Project) -> None:
    (project.folder / "mine.onnx").write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"mine\.onnx: is there already") as caught:
        choose_name(project, reference(project), Scheme(), "mine.onnx")
    assert "--output" in (caught.value.hint or "")


def test_only_the_onnx_entry_of_model_yaml_changes() -> None:
    onnx = {"engine": "onnx", "file": "old.onnx", "inputs": {"image": "x"}}
    data = b"# mine\n" + description(engines=[onnx, TFLITE]) + b"# the end\n"
    entry = EngineFile(engine="onnx", file="new.onnx", inputs={"image": "x"})
    made = described_with(data, entry)
    assert model_yaml.parse(made).engines == (entry, model_yaml.parse(data).engines[1])
    assert made == data.replace(b"old.onnx", b"new.onnx")


def test_an_onnx_entry_is_added_where_there_is_none() -> None:
    made = model_yaml.parse(described_with(description(engines=[TFLITE]), NEW))
    assert [one.engine for one in made.engines] == ["onnx", "tflite"]


def test_the_digest_of_the_pipeline_follows() -> None:
    plain = model_yaml.parse(description())
    data = description(pipeline_digest=digest_of_pipeline(plain))
    made = model_yaml.parse(described_with(data, NEW))
    assert made.pipeline_digest == digest_of_pipeline(made) != digest_of_pipeline(plain)


def test_a_draft_is_the_project_with_another_file(project: Project) -> None:
    draft = Draft(project, NEW, b"new")
    assert draft.read(NEW.file, 10) == b"new"
    assert draft.labels() == ("a", "b", "c", "d")
    assert draft.description.engines == (NEW,)
    with pytest.raises(BadInputError):
        draft.read("nothing", 10)


def test_published(project: Project) -> None:
    publish(project, NEW, b"new", reference(project))
    after = open_project(project.folder)
    assert after.description.engines == (NEW,)
    assert after.read(NEW.file, 10) == b"new"
    assert after.recipe == Recipe(reference="weights/shapes-fp32.onnx")


def test_no_file_is_overwritten(project: Project) -> None:
    """Neither one that model.yaml names, nor one that only has such a name."""
    for data, name in ((b"first", ""), (b"second", "-2"), (b"third", "-3"), (b"first", "")):
        found = publish(open_project(project.folder), NEW, data, reference(project))
        assert found == f"weights/shapes-u8s8{name}.onnx"
        assert open_project(project.folder).description.engines[0].file == found
    made = {one.name: one.read_bytes() for one in (project.folder / "weights").glob("*u8s8*")}
    assert made == {
        "shapes-u8s8.onnx": b"first", "shapes-u8s8-2.onnx": b"second",
        "shapes-u8s8-3.onnx": b"third",
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"nev", b"newer", b"ne", b""])
def test_only_the_same_content_is_the_same_file(project: Project, data: bytes) -> None:
    (project.folder / NEW.file).write_bytes(data)
    assert publish(project, NEW, b"new", reference(project)) == "weights/shapes-u8s8-2.onnx"
    assert (project.folder / NEW.file).read_bytes() == data


def test_a_link_is_not_followed(project: Project, tmp_path: Path) -> None:
    (tmp_path / "outside.onnx").write_bytes(b"new")
    (project.folder / NEW.file).symlink_to(tmp_path / "outside.onnx")
    assert publish(project, NEW, b"new", reference(project)) == "weights/shapes-u8s8-2.onnx"


def test_what_was_named_before_and_is_needed_no_more(project: Project) -> None:
    first = publish(project, NEW, b"first", reference(project))
    assert superseded(project, first, reference(project)) is None  # the float model
    between = open_project(project.folder)
    assert superseded(between, first, reference(project)) is None
    second = publish(between, NEW, b"second", reference(project))
    assert superseded(between, second, reference(project)) == first


def test_a_reference_elsewhere_is_found_again(project: Project, tmp_path: Path) -> None:
    """Also through a link to the project's folder."""
    elsewhere = tmp_path / "elsewhere" / "net.onnx"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"float")
    (tmp_path / "deep/er").mkdir(parents=True)
    link = tmp_path / "deep/er/link"
    link.symlink_to(project.folder)
    publish(open_project(link), NEW, b"new", elsewhere)
    for folder in (link, project.folder):
        found = open_project(folder).reference()
        assert found is not None
        assert found.read_bytes() == b"float"


def test_a_recipe_that_names_the_reference_already_stays(project: Project) -> None:
    text = "# by hand\nreference = './weights/shapes-fp32.onnx'\ninputs = 'photos'\n"
    (project.folder / "build.toml").write_text(text)
    publish(project, NEW, b"new", reference(project))
    assert (project.folder / "build.toml").read_text() == text


def test_a_recipe_keeps_what_else_it_says(project: Project) -> None:
    text = "# mine\nreference = 'old.onnx'  # the old one\ninclude = ['LICENSE']\n"
    (project.folder / "build.toml").write_text(text)
    publish(project, NEW, b"new", reference(project), project.folder / "../photos")
    assert (project.folder / "build.toml").read_text() == (
        "# mine\nreference = \"weights/shapes-fp32.onnx\"\ninclude = ['LICENSE']\n"
        'inputs = "../photos"\n'
    )


def test_model_yaml_that_was_broken_meanwhile_changes_nothing(project: Project) -> None:
    (project.folder / "model.yaml").write_text("nonsense: true\n")
    with pytest.raises(DescriptionError):
        publish(project, NEW, b"new", reference(project))
    assert not (project.folder / NEW.file).exists()
    assert not (project.folder / "build.toml").exists()


@pytest.mark.parametrize("linked", ["weights", "weights/deep", "weights/deep/x.onnx"])
def test_nothing_is_written_through_a_link(project: Project, tmp_path: Path, linked: str) -> None:
    (tmp_path / "outside/deep").mkdir(parents=True)
    moved = project.folder / "elsewhere.onnx"
    reference(project).rename(moved)
    (project.folder / "weights").rmdir()
    (project.folder / linked).parent.mkdir(parents=True, exist_ok=True)
    (project.folder / linked).symlink_to(tmp_path / "outside")
    with pytest.raises(BadInputError, match=f"{linked}: is a symbolic link"):
        require_writable(project, "weights/deep/x.onnx")
    entry = EngineFile(engine="onnx", file="weights/deep/x.onnx")
    if linked != entry.file:
        with pytest.raises(BadInputError, match="is a symbolic link"):
            publish(project, entry, b"new", moved)
    assert [one.name for one in (tmp_path / "outside").rglob("*")] == ["deep"]


@pytest.fixture
def crashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Fails at the writes that the test names; a name with ``!`` after the file is there."""
    wanted: list[str] = []

    def stop(name: str) -> None:
        if name in wanted:
            raise OSError("the power is gone")

    def write(path: Path, data: bytes) -> None:
        stop(path.name)
        write_durably(path, data)
        stop(f"{path.name}!")

    def create(path: Path, data: bytes) -> None:
        stop(path.name)
        create_durably(path, data)

    def change_recipe(folder: Path, **changes: str | tuple[str, ...]) -> None:
        stop(recipe.RECIPE_FILE)
        real(folder, **changes)

    real = recipe.change_recipe
    module = "edge_agent.authoring.quantising.quantised_file"
    monkeypatch.setattr(f"{module}.write_durably", write)
    monkeypatch.setattr(f"{module}.create_durably", create)
    monkeypatch.setattr(recipe, "change_recipe", change_recipe)
    yield wanted


def everything(project: Project) -> dict[Path, bytes | None]:
    return {one: one.read_bytes() if one.is_file() else None for one in project.folder.rglob("*")}


@pytest.mark.parametrize("recipe_there", [False, True])
@pytest.mark.parametrize("file", ["x.onnx", "build.toml", "model.yaml"])
def test_a_step_that_fails_changes_nothing(
    project: Project, crashes: list[str], file: str, recipe_there: bool
) -> None:
    if recipe_there:
        (project.folder / "build.toml").write_text("inputs = 'photos'  # mine\n")
    before = everything(project)
    crashes.append(file)
    with pytest.raises(OSError, match="power"):
        publish(project, EngineFile(engine="onnx", file="a/b/x.onnx"), b"new", reference(project))
    assert everything(project) == before


def test_what_model_yaml_names_already_stays(project: Project, crashes: list[str]) -> None:
    crashes.append("model.yaml!")
    with pytest.raises(OSError, match="power"):
        publish(project, NEW, b"new", reference(project))
    after = open_project(project.folder)
    assert after.description.engines == (NEW,)
    assert after.read(NEW.file, 10) == b"new"
    assert after.recipe.reference == "weights/shapes-fp32.onnx"


@pytest.mark.parametrize("file", ["shapes-u8s8.onnx", "build.toml", "model.yaml"])
def test_a_crash_leaves_a_project_that_works(
    project: Project, crashes: list[str], file: str
) -> None:
    crashes.append(file)
    with pytest.raises(OSError, match="power"):
        publish(project, NEW, b"new", reference(project))
    after = open_project(project.folder)
    assert after.description == project.description
    assert all(after.read(name, 10**6) for name in after.files())
    crashes.clear()
    publish(after, NEW, b"new", reference(project))
    assert open_project(project.folder).description.engines == (NEW,)


@pytest.mark.parametrize("file", ["shapes-u8s8-2.onnx", "build.toml", "model.yaml"])
def test_a_crash_the_second_time_leaves_the_first_result(
    project: Project, crashes: list[str], file: str
) -> None:
    publish(project, NEW, b"first", reference(project))
    between = open_project(project.folder)
    other = project.folder / "other-fp32.onnx"
    other.write_bytes(reference(project).read_bytes())
    crashes.append(file)
    with pytest.raises(OSError, match="power"):
        publish(between, NEW, b"second", other)
    after = open_project(project.folder)
    assert after.description == between.description
    assert after.read(NEW.file, 10) == b"first"
    crashes.clear()
    made = publish(after, NEW, b"second", other)
    assert open_project(project.folder).read(made, 10) == b"second"
    assert made == "weights/shapes-u8s8-2.onnx"
