"""`bundle init`: from a bare model file to a project, right as far as the file tells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import description as descriptions
from edge_agent import model_yaml, yaml_subset
from edge_agent.authoring import naming, sections
from edge_agent.authoring.drafting import model_facts
from edge_agent.authoring.drafting.draft import draft, spec
from edge_agent.authoring.drafting.parts import image_input
from edge_agent.authoring.drafting.postprocess import LABELS_FILE, labels_of, scores
from edge_agent.authoring.drafting.text import text
from edge_agent.authoring.lint import isolated
from edge_agent.authoring.lint.run import check_model
from edge_agent.authoring.recipe import change_recipe
from edge_agent.authoring.source_files import read_model
from edge_agent.authoring.staging import require_free, written
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.errors import BadInputError, DescriptionError, ModelFileError

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.authoring.drafting.model_facts import ModelFacts
    from edge_agent.authoring.drafting.parts import Draft, Wishes
    from edge_agent.backends.base import ModelFile


_NOISE_S: Final = 30


@dataclass(frozen=True, slots=True)
class Looked:
    """A model file that was looked at.

    Attributes:
        path: Where it is.
        model: Its bytes.
        facts: What it says of itself.
    """

    path: Path
    model: ModelFile
    facts: ModelFacts

    @property
    def file(self) -> str:
        """Its path in the project."""
        return f"weights/{naming.slug(self.path.stem)}.{self.facts.engine}"


@dataclass(frozen=True, slots=True)
class NewProject:
    """What was made.

    Attributes:
        path: The project's folder.
        name: The bundle's name.
        version: Its version.
        holes: What is still to be said: the key, and its line in model.yaml.
        takes_image: Whether one input takes an image.
        tensors: Names of the others.
    """

    path: Path
    name: str
    version: str
    holes: tuple[tuple[str, int | None], ...]
    takes_image: bool
    tensors: tuple[str, ...]


def look(agent: Agent, path: Path) -> Looked:
    """Looks at a model file.

    Raises:
        BadInputError: It can't be read, or is of another kind.
        ModelFileError: Something is wrong with it: what `bundle lint` would say first.
        EngineUnavailableError: Its engine, or the package `onnx`, isn't installed here.
    """
    model_facts.engine_of(path)
    model = read_model(path)
    for finding in check_model(agent, path).findings:
        if finding.level == "error":
            raise ModelFileError(finding.message, path=str(path), hint=finding.hint)
    return Looked(path, model, model_facts.read_facts(model, path))


def write(looked: Looked, wishes: Wishes, out: Path | None, inputs: Path | None) -> NewProject:
    """Writes the project.

    Args:
        looked: The model.
        wishes: What its author says.
        out: The project's folder; None takes the model's name, here.
        inputs: Folder of sample inputs.

    Raises:
        BadInputError: The folder exists, or what the author says contradicts the file.
        OSError: It can't be written; nothing is left behind.
    """
    folder = out or Path(looked.path.stem)
    require_free(folder)
    made = draft(looked.facts, wishes, looked.file, _activation(looked, wishes))
    data = text(made)
    holes = _holes(data)
    files = _files(looked, wishes) | {DESCRIPTION_FILE: data}
    recipe: dict[str, str | tuple[str, ...]] = {}
    if looked.facts.is_float:
        recipe["reference"] = looked.file
    if inputs:
        recipe["inputs"] = os.path.relpath(inputs, folder)
    if _are_extra_labels(files, made):
        recipe["include"] = (LABELS_FILE,)
    with written(folder, files) as staging:
        change_recipe(staging, **recipe)
    image = made.value.get("preprocess", {}).get("input")
    tensors = tuple(one.name for one in looked.facts.inputs if one.name != image)
    return NewProject(folder, wishes.name, wishes.version, holes, image is not None, tensors)


def _files(looked: Looked, wishes: Wishes) -> dict[str, bytes]:
    files = {looked.file: looked.model.data}
    for at, data in looked.model.external.items():
        files[f"weights/{at}"] = data
    if len(files) != 1 + len(looked.model.external):
        raise BadInputError(
            "its external data has the name that the model itself gets", path=str(looked.path)
        )
    labels = labels_of(looked.facts, wishes)
    if labels:
        files[LABELS_FILE] = msgspec.json.encode(labels)
    return files


def _are_extra_labels(files: dict[str, bytes], made: Draft) -> bool:
    """Whether there are labels that model.yaml doesn't name: those of a detector."""
    return LABELS_FILE in files and made.value["postprocess"] == {"kind": "raw"}


def _holes(data: bytes) -> tuple[tuple[str, int | None], ...]:
    value, lines = yaml_subset.load(data)
    found = tuple(
        (path.removeprefix("$."), model_yaml.nearest_line(path, lines))
        for path in model_yaml.holes(value)
    )
    if not found:
        model_yaml.parse(data)  # nobody has to fill anything in: it must be right now
    return found


def _activation(looked: Looked, wishes: Wishes) -> str | None:
    """Tells probabilities from logits by the answer to noise, None where that can't be had."""
    facts, image = looked.facts, image_input(looked.facts, wishes)
    labels = labels_of(facts, wishes)
    found = scores(facts, len(labels) if labels else None, wishes.output)
    if not found or not (labels or image) or (image and image.size is None):
        return None
    value: dict[str, Any] = {
        "schema": descriptions.SCHEMA,
        "name": "local/noise",
        "version": "0.0.0",
        "task": "noise",
        "inputs": [spec(one, facts, image) for one in facts.inputs],
        "outputs": [spec(one, facts, None) for one in facts.outputs],
        "engines": [{"engine": facts.engine, "file": looked.file}],
        "postprocess": {"kind": "raw"},
    }
    noise = {}
    size = image.size if image else None
    for one in value["inputs"]:
        shape = [_length(axis, one, size) for axis in one["shape"]]
        noise[one["name"]] = (one["dtype"], tuple(shape))
    described = sections.to_yaml(value)
    try:
        model_yaml.parse(described)
    except DescriptionError:
        return None
    job = isolated.Job(
        str(looked.path.parent.resolve()),
        looked.path.name,
        facts.engine,
        noise=noise,
        description=described.decode(),
    )
    likely = isolated.look(job, _NOISE_S).facts.get("probabilities")
    if likely is None:
        return None
    return "none" if found[0].name in likely else "softmax"


def _length(axis: int | str, one: dict[str, Any], size: tuple[int, int] | None) -> int:
    if isinstance(axis, int):
        return axis
    if size and "layout" in one and axis in ("height", "width"):
        return size[axis == "width"]
    return 1
