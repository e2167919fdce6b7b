"""The engines that the drift gate runs, and how each does on the golden input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from edge_agent import golden
from edge_agent.authoring.gate import output_steps, references
from edge_agent.authoring.gate.sample_inputs import SampleInputs
from edge_agent.errors import AgentError, EngineUnavailableError

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus, ModelFile, Session
    from edge_agent.bundles import Contents
    from edge_agent.description import EngineFile, ModelDescription
    from edge_agent.loading import ModelLoader
    from edge_agent.types import Tensor


class GateEngine(Struct, frozen=True):
    """One engine of the model, ready to run.

    Attributes:
        part: Its entry in model.yaml.
        version: Package and version.
        session: The session.
        steps: What one step of quantisation is worth by output; None where it isn't known.
    """

    part: EngineFile
    version: str | None
    session: Session
    steps: dict[str, float | None]

    def run(self, inputs: SampleInputs) -> dict[str, Tensor]:
        """Answers one input."""
        return self.session.run(inputs.of(self.part.layout))


class Loaded(Struct, frozen=True):
    """What takes part in a comparison.

    Attributes:
        engines: The model's engines that are installed here, in the order of model.yaml.
        missing: What there is of the others, by their names.
        reference: The FP32 reference, under the names of model.yaml; None without one.
        notes: What stays unknown, in sentences.
    """

    engines: tuple[GateEngine, ...]
    missing: dict[str, EngineStatus]
    reference: GateEngine | None
    notes: tuple[str, ...]


def load(loader: ModelLoader, contents: Contents, reference: ModelFile | None) -> Loaded:
    """Loads every engine of a model that is installed here, and the reference.

    Args:
        loader: Makes the sessions.
        contents: The model.
        reference: The FP32 model, None without one.

    Raises:
        EngineUnavailableError: None of the engines is installed here, or the reference's isn't.
        ModelFileError: One refuses its file, or it isn't as described.
    """
    notes: list[str] = []
    ready: list[GateEngine] = []
    missing: dict[str, EngineStatus] = {}
    for part in contents.description.engines:
        status = loader.backends[part.engine].status()
        if not status.available:
            missing[part.engine] = status
            continue
        model = contents.model_file(part)
        session = loader.load_session(model, contents.description, part)
        steps = _steps(model, contents.description, part, notes)
        ready.append(GateEngine(part, status.version, session, steps))
    if not ready:
        engine, status = next(iter(missing.items()))
        raise EngineUnavailableError(f"{engine}: {status.problem}", hint=status.hint)
    right = _reference(loader, contents.description, reference, notes)
    return Loaded(tuple(ready), missing, right, tuple(notes))


def _reference(
    loader: ModelLoader, description: ModelDescription, model: ModelFile | None, notes: list[str]
) -> GateEngine | None:
    if model is None:
        notes.append("no FP32 reference was given: engines are compared with each other only")
        return None
    part = references.fit(model, description, notes.append)
    return GateEngine(part, None, loader.load_session(model, description, part), {})


def wrong_golden(engine: GateEngine, contents: Contents, loader: ModelLoader) -> str | None:
    """Returns what is wrong with an engine's answer to the golden input, None where nothing is."""
    request = golden.request(contents)
    if request is None:
        return None
    pipeline = loader.pipeline(contents)
    try:
        outputs = engine.run(SampleInputs(pipeline, request))
        return golden.difference(contents, pipeline.answer(outputs, 1), outputs)
    except AgentError as error:
        return str(error)


def _steps(
    model: ModelFile, description: ModelDescription, part: EngineFile, notes: list[str]
) -> dict[str, float | None]:
    try:
        return output_steps.output_steps(model, description, part)
    except EngineUnavailableError as error:
        notes.append(f"the quantisation steps of {part.engine} are unknown: {error}")
        return {}
