"""Tries a model file on its engine: it loads, is as described, answers rightly; in the child."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent import golden, model_yaml
from edge_agent.authoring import noise
from edge_agent.authoring.lint import tensors
from edge_agent.authoring.lint.findings import Finding, one_line
from edge_agent.authoring.project import Project
from edge_agent.authoring.recipe import Recipe
from edge_agent.authoring.source_files import read_model
from edge_agent.backends import onnx, tflite
from edge_agent.backends.registry import BACKENDS
from edge_agent.errors import AgentError, EngineUnavailableError
from edge_agent.images import ImageLimits
from edge_agent.pipeline import Pipeline
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.authoring.lint.child import Teller
    from edge_agent.authoring.lint.isolated import Job
    from edge_agent.backends.base import ModelFile, Session

_DESCRIBE: Final = {"onnx": onnx.describe, "tflite": tflite.describe}
_NAMES: Final = {"onnx": "ONNX Runtime", "tflite": "LiteRT"}


def look(job: Job, tell: Teller) -> None:
    """Tries the file.

    Raises:
        EngineUnavailableError: The engine isn't installed here.
    """
    tell.stage(_NAMES[job.engine])
    try:
        model = read_model(Path(job.folder, job.file))
        inputs, outputs = _DESCRIBE[job.engine](model, job.file)
    except EngineUnavailableError:
        raise
    except AgentError as error:
        tell.finding(Finding("engine-refuses", job.file, one_line(error.message), hint=error.hint))
        return
    if job.engine == "tflite":
        tell.facts(quantised=any(one.scale for one in (*inputs, *outputs)) or None)
    if job.noise:
        _noise(job, tell, model)
    if not job.described:
        return
    project = Project(Path(job.folder), recipe=Recipe())  # what is wrong with it is told elsewhere
    part = next(one for one in project.description.engines if one.file == job.file)
    before = tell.errors
    for finding in tensors.check(project.description, part, inputs, outputs):
        tell.finding(finding)
    if job.answers and tell.errors == before:
        _answers(job, tell, project, model)


def _noise(job: Job, tell: Teller, model: ModelFile) -> None:
    """Tells whether the answer to noise is probabilities, where it can be had."""
    described = model_yaml.parse(job.description.encode())
    session = BACKENDS[job.engine].load(model, described, described.engines[0], 1)
    inputs = {name: noise.noise(shape, dtype) for name, (dtype, shape) in job.noise.items()}
    tell.stage(f"{_NAMES[job.engine]}, which answers noise")
    answer = session.run(inputs)
    likely = [name for name, value in answer.items() if noise.are_probabilities(value)]
    tell.facts(probabilities=likely)


def _answers(job: Job, tell: Teller, project: Project, model: ModelFile) -> None:
    description = project.description
    part = next(one for one in description.engines if one.file == job.file)
    try:
        session = BACKENDS[job.engine].load(model, description, part, 1)
        problem = _golden(job, tell, project, session)
    except EngineUnavailableError:
        raise
    except (AgentError, SigningError) as error:
        tell.finding(Finding("golden-fails", job.file, one_line(str(error))))
        return
    if problem:
        tell.finding(
            Finding(
                "golden-wrong",
                job.file,
                f"{_NAMES[job.engine]} answers the golden input wrongly: {problem}",
                hint="keep the right answer with edge-agent bundle golden, or widen --tolerance",
            )
        )


def _golden(job: Job, tell: Teller, project: Project, session: Session) -> str | None:
    request = golden.request(project)
    if request is None:
        return None
    limits = ImageLimits(job.max_image_bytes, job.max_image_pixels)
    pipeline = Pipeline(project.description, project.labels(), limits)
    part = next(one for one in project.description.engines if one.file == job.file)
    inputs = pipeline.prepare(request, part.layout)
    tell.stage(f"{_NAMES[job.engine]}, which answers the golden input")
    outputs = session.run(inputs)
    return golden.difference(project, pipeline.answer(outputs, 1), outputs)
