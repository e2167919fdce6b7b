"""`bundle golden`: runs a model once and keeps the input with its answer as the health probe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent import golden, samples
from edge_agent.authoring import sections
from edge_agent.authoring.gate import references, verification
from edge_agent.authoring.golden_section import FOLDER, GoldenSection
from edge_agent.authoring.project import SIGNATURES, open_project, read_file
from edge_agent.authoring.source_files import read, require_no_links
from edge_agent.authoring.staging import make_folders
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import Classification
from edge_agent.errors import AgentError, BadInputError, EngineUnavailableError
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


@dataclass(frozen=True, slots=True)
class GoldenRequest:
    """What is to be kept.

    Attributes:
        folder: The project.
        sample: The input: an image, or a file with the tensors.
        tensors: Files of tensors by input; where neither is given, the golden input that the
            project has is answered anew.
        tolerances: The largest difference that counts as right, by output (or ``score``); under
            the empty name that of all others.
    """

    folder: Path
    sample: Path | None
    tensors: Mapping[str, Path]
    tolerances: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GoldenAnswer:
    """What was kept.

    Attributes:
        source: The engine that answered.
        labels: The best classes, of a classifier.
        outputs: The tensors, of a raw model.
        tolerances: The largest difference that counts as right, by output; of a classifier
            ``score``.
        wrong: The engines, and the reference, that answer otherwise, each with what differs.
        files: What was written.
    """

    source: str
    labels: tuple[ScoredLabel, ...]
    outputs: Mapping[str, Tensor]
    tolerances: Mapping[str, float]
    wrong: tuple[str, ...]
    files: tuple[str, ...]


def keep(agent: Agent, asked: GoldenRequest) -> GoldenAnswer:
    """Runs the first engine that is here, and keeps its answer.

    A device compares itself with what the bundle's own file answers; how far that lies from the
    reference is for the drift gate to judge. Whoever else answers otherwise is told.

    Args:
        agent: The agent.
        asked: What is to be kept.

    Raises:
        BadInputError: The input can't be used, or the answer isn't finite numbers.
        ModelFileError: The model can't be loaded.
        EngineUnavailableError: No engine that it needs is installed here.
        OSError: The project can't be written; it is as it was.
    """
    project = open_project(asked.folder)
    if (project.folder / SIGNATURES).exists():
        raise BadInputError(
            "is a signed bundle", path=str(asked.folder), hint="change its project, and build again"
        )
    request = _request(agent, project, asked)
    parts = agent.loader.usable_engines(project)
    if not parts:
        names = " or ".join(one.engine for one in project.description.engines)
        raise EngineUnavailableError(f"no engine is installed here: {names}")
    pipeline = agent.loader.pipeline(project)
    session = agent.loader.session(project, parts[0])
    outputs = session.run(pipeline.prepare(request, parts[0].layout))
    labels = pipeline.answer(outputs, None)
    section = GoldenSection()
    section.keep_input(request, Path(request.source).name)
    if isinstance(project.description.postprocess, Classification):
        section.keep_labels(labels, asked.tolerances)
    else:
        section.keep_outputs(project, outputs, asked.tolerances)
    _write(project, section)
    return GoldenAnswer(
        parts[0].engine,
        labels,
        {} if labels else outputs,
        section.tolerances,
        _wrong(agent, asked.folder, request),
        tuple(sorted(section.files)),
    )


def _request(agent: Agent, project: Project, asked: GoldenRequest) -> Request:
    if asked.sample is None and not asked.tensors:
        there = golden.request(project)
        if there is None:
            raise BadInputError(
                "has no golden input yet", path=str(project.folder), hint=_what_it_takes(project)
            )
        return there
    if asked.sample and asked.sample.suffix.lower() in samples.TENSOR_ENDINGS:
        return samples.request(project, asked.sample, agent.limits)
    return _from_files(agent, project, asked)


def _from_files(agent: Agent, project: Project, asked: GoldenRequest) -> Request:
    from edge_agent import tensors

    specs = {one.name: one for one in project.description.inputs}
    rule = project.description.preprocess
    fed = set(asked.tensors) | ({rule.input} if asked.sample and rule else set())
    for name in asked.tensors:
        if name not in specs:
            raise BadInputError(f"the model has no input {name!r}; it takes {', '.join(specs)}")
    missing = [name for name in specs if name not in fed]
    if missing:
        raise BadInputError(
            f"nothing feeds the input {missing[0]!r}",
            path=str(project.folder),
            hint=_what_it_takes(project),
        )
    values = {
        name: tensors.read(read(path, tensors.MAX_BYTES), str(path), specs[name])
        for name, path in asked.tensors.items()
    }
    data = read(asked.sample, agent.limits.max_bytes) if asked.sample else None
    return Request(project.ref.name, str(asked.sample or "--input"), image=data, tensors=values)


def _what_it_takes(project: Project) -> str:
    rule = project.description.preprocess
    names = [one.name for one in project.description.inputs if not rule or one.name != rule.input]
    tensors = " ".join(f"--input {name}=FILE" for name in names)
    if rule:
        return f"give an image {'and ' + tensors if tensors else ''}".strip()
    return f"give {tensors}, or one .npz with an array for each input"


def _write(project: Project, section: GoldenSection) -> None:
    """Puts the files beside those that are there, then names them, then removes the old ones."""
    folder = project.folder
    old = _own_files(project)
    renamed = {name: _free(folder, name, data) for name, data in section.files.items()}
    data = read_file(folder, DESCRIPTION_FILE, MAX_BYTES)
    described = sections.replace(data, "golden", _with_names(section.value, renamed))
    made = [name for name in renamed.values() if not (folder / name).exists()]
    try:
        for name, content in section.files.items():
            make_folders(folder, renamed[name])
            write_durably(folder / renamed[name], content)
        write_durably(folder / DESCRIPTION_FILE, described)
    except OSError:
        for name in made:
            (folder / name).unlink(missing_ok=True)
        raise
    for name in old - set(renamed.values()):
        if (folder / name).is_file():
            (folder / name).unlink()
    section.files = {renamed[name]: content for name, content in section.files.items()}


def _with_names(value: object, renamed: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _with_names(one, renamed) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_names(one, renamed) for one in value]
    return renamed.get(value, value) if isinstance(value, str) else value


def _free(folder: Path, name: str, content: bytes) -> str:
    """Returns a name that no other content has, so that a crash leaves the old pair whole."""
    stem, _, ending = name.rpartition(".")
    count = 1
    while True:
        require_no_links(folder, name)
        if not (folder / name).exists() or (folder / name).read_bytes() == content:
            return name
        count += 1
        name = f"{stem}-{count}.{ending}"


def _own_files(project: Project) -> set[str]:
    """Returns the files that the section named before, those in `golden/`."""
    known = project.description.golden
    if known is None:
        return set()
    names = [known.image or "", *known.tensors.values(), *(one.file for one in known.outputs)]
    return {name for name in names if name.startswith(f"{FOLDER}/") and ".." not in name}


def _wrong(agent: Agent, folder: Path, request: Request) -> tuple[str, ...]:
    """Tries what was kept on each engine that is here, and on the reference."""
    project = open_project(folder)
    found = [
        _problem(agent, project, request, part, agent.loader.session(project, part), part.engine)
        for part in agent.loader.usable_engines(project)
    ]
    path = project.reference()
    if path is not None:
        try:
            model = verification.read_reference(path)
            part = references.fit(model, project.description, agent.notify)
            session = agent.loader.load_session(model, project.description, part)
            found.append(_problem(agent, project, request, part, session, "the reference"))
        except AgentError as error:
            agent.notify(f"the reference can't be asked: {error}")
    return tuple(one for one in found if one)


def _problem(
    agent: Agent,
    project: Project,
    request: Request,
    part: EngineFile,
    session: Session,
    name: str,
) -> str | None:
    pipeline = agent.loader.pipeline(project)
    outputs = session.run(pipeline.prepare(request, part.layout))
    problem = golden.difference(project, pipeline.answer(outputs, 1), outputs)
    return f"{name} answers otherwise: {problem}" if problem else None
