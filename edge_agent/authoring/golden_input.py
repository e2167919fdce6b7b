"""`bundle golden`: runs a model once and keeps the input with its answer as the health probe."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring import sections
from edge_agent.authoring.drafting import naming
from edge_agent.authoring.gate import references
from edge_agent.authoring.project import open_project, read_file
from edge_agent.authoring.source_files import read, read_model
from edge_agent.authoring.staging import make_folders
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import Classification
from edge_agent.errors import BadInputError, EngineUnavailableError
from edge_agent.golden import difference
from edge_agent.types import Request
from edge_agent.yaml_subset import MAX_BYTES
from edge_signing.durable import write_durably

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_agent.app import Agent
    from edge_agent.authoring.project import Project
    from edge_agent.backends.base import Session
    from edge_agent.description import EngineFile
    from edge_agent.types import ScoredLabel, Tensor

SCORE_TOLERANCE: Final = 0.05
# Of the largest value in an output: enough for what other processors and INT8 do to its digits.
RELATIVE_TOLERANCE: Final = 0.01
_FOLDER: Final = "golden"


@dataclass(frozen=True, slots=True)
class GoldenAnswer:
    """What was kept.

    Attributes:
        source: What answered: ``the reference``, or an engine's name.
        labels: The best classes, of a classifier.
        outputs: The tensors, of a raw model.
        tolerances: The largest difference that counts as right, by output; of a classifier
            ``score``.
        wrong: Engines that answer otherwise by now, each with what differs.
        files: What was written.
    """

    source: str
    labels: tuple[ScoredLabel, ...]
    outputs: Mapping[str, Tensor]
    tolerances: Mapping[str, float]
    wrong: tuple[str, ...]
    files: tuple[str, ...]


def keep(
    agent: Agent,
    folder: Path,
    image: Path | None,
    tensors: Mapping[str, Path],
    tolerance: float | None,
) -> GoldenAnswer:
    """Runs the reference, or the first engine that is here, and keeps its answer.

    Args:
        agent: The agent.
        folder: The project.
        image: The image, for a model that takes one.
        tensors: Files of tensors by input.
        tolerance: The largest difference that counts as right; None takes the usual one.

    Raises:
        BadInputError: The input can't be used, or the answer isn't finite numbers.
        ModelFileError: The model can't be loaded.
        EngineUnavailableError: No engine that it needs is installed here.
        OSError: The project can't be written.
    """
    project = open_project(folder)
    request = _request(agent, project, image, tensors)
    part, session, source = _session(agent, project)
    pipeline = agent.loader.pipeline(project)
    outputs = session.run(pipeline.prepare(request, part.layout))
    labels = pipeline.answer(outputs, None)
    section, files, tolerances = _section(project, image, request, labels, outputs, tolerance)
    data = read_file(folder, DESCRIPTION_FILE, MAX_BYTES)
    described = sections.replace(data, "golden", section)
    old = _own_files(project)
    for name, content in files.items():
        make_folders(folder, name)
        write_durably(folder / name, content)
    write_durably(folder / DESCRIPTION_FILE, described)
    for name in old - set(files):
        (folder / name).unlink(missing_ok=True)
    kept = {} if isinstance(project.description.postprocess, Classification) else outputs
    return GoldenAnswer(
        source, labels, kept, tolerances, _wrong(agent, folder, request), tuple(sorted(files))
    )


def _request(
    agent: Agent, project: Project, image: Path | None, files: Mapping[str, Path]
) -> Request:
    from edge_agent import tensors

    specs = {one.name: one for one in project.description.inputs}
    rule = project.description.preprocess
    fed = set(files) | ({rule.input} if image and rule else set())
    for name in files:
        if name not in specs:
            raise BadInputError(f"the model has no input {name!r}; it takes {', '.join(specs)}")
    missing = [name for name in specs if name not in fed]
    if missing:
        takes_image = rule and rule.input == missing[0]
        raise BadInputError(
            f"nothing feeds the input {missing[0]!r}",
            path=str(project.folder),
            hint="give an image" if takes_image else f"say --input {missing[0]}=FILE.npy",
        )
    values = {
        name: tensors.read(read(path, tensors.MAX_BYTES), str(path), specs[name])
        for name, path in files.items()
    }
    data = read(image, agent.limits.max_bytes) if image else None
    return Request(project.ref.name, str(image or "--input"), image=data, tensors=values)


def _session(agent: Agent, project: Project) -> tuple[EngineFile, Session, str]:
    path = project.reference()
    if path is not None:
        model = read_model(path)
        part = references.fit(model, project.description)
        return part, agent.loader.load_session(model, project.description, part), "the reference"
    parts = agent.loader.usable_engines(project)
    if not parts:
        names = " or ".join(one.engine for one in project.description.engines)
        raise EngineUnavailableError(f"no engine is installed here: {names}")
    return parts[0], agent.loader.session(project, parts[0]), parts[0].engine


def _section(
    project: Project,
    image: Path | None,
    request: Request,
    labels: tuple[ScoredLabel, ...],
    outputs: Mapping[str, Tensor],
    tolerance: float | None,
) -> tuple[dict[str, Any], dict[str, bytes], dict[str, float]]:
    """Returns the section golden, the files that it names, and its tolerances."""
    section: dict[str, Any] = {}
    files: dict[str, bytes] = {}
    if image and request.image:
        section["image"] = f"{_FOLDER}/{naming.slug(image.stem)}{image.suffix.lower()}"
        files[section["image"]] = request.image
    for name, value in request.tensors.items():
        file = _free(f"{_FOLDER}/input-{naming.slug(name)}", files)
        section.setdefault("tensors", {})[name] = file
        files[file] = _npy(value)
    if labels:
        allowed = SCORE_TOLERANCE if tolerance is None else tolerance
        best = labels[0]
        section["top"] = {"index": best.index, "score": _short(best.score), "tolerance": allowed}
        return section, files, {"score": allowed}
    allowances = {}
    for spec in project.description.outputs:
        value = outputs[spec.name]
        allowances[spec.name] = _allowed(spec.name, value) if tolerance is None else tolerance
        file = _free(f"{_FOLDER}/output-{naming.slug(spec.name)}", files)
        files[file] = _npy(value)
        entry = {"name": spec.name, "file": file, "tolerance": allowances[spec.name]}
        section.setdefault("outputs", []).append(entry)
    return section, files, allowances


def _allowed(name: str, value: Tensor) -> float:
    """Returns the usual tolerance of an output: whole numbers must be met."""
    import numpy as np

    if value.dtype.kind in "iub":
        return 0.0
    if not np.isfinite(value).all():
        raise BadInputError(
            f"the answer isn't finite numbers: the output {name!r}",
            hint="is the input what the model was made for?",
        )
    largest = float(np.abs(value.astype(np.float64)).max(initial=0.0))
    return float(f"{max(RELATIVE_TOLERANCE * largest, 1e-5):.3g}")


def _npy(value: Tensor) -> bytes:
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=False)
    return stream.getvalue()


def _free(stem: str, files: Mapping[str, bytes]) -> str:
    """Returns a name that none of the files has: two inputs may differ by a dot alone."""
    name, count = f"{stem}.npy", 1
    while name in files:
        count += 1
        name = f"{stem}-{count}.npy"
    return name


def _own_files(project: Project) -> set[str]:
    """Returns the files that the section named before, those in `golden/`."""
    golden = project.description.golden
    if golden is None:
        return set()
    names = [golden.image or "", *golden.tensors.values(), *(one.file for one in golden.outputs)]
    return {name for name in names if name.startswith(f"{_FOLDER}/") and ".." not in name}


def _wrong(agent: Agent, folder: Path, request: Request) -> tuple[str, ...]:
    """Tries what was kept on each engine that is here."""
    project = open_project(folder)
    pipeline = agent.loader.pipeline(project)
    found = []
    for part in agent.loader.usable_engines(project):
        session = agent.loader.session(project, part)
        outputs = session.run(pipeline.prepare(request, part.layout))
        problem = difference(project, pipeline.answer(outputs, 1), outputs)
        found += [f"{part.engine} answers with {problem}"] if problem else []
    return tuple(found)


def _short(score: float) -> float:
    return float(f"{score:.6g}")
