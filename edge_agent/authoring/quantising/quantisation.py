"""From a float ONNX model to an INT8 one in its project, if its answers stay close enough."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import samples
from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.gate import references
from edge_agent.authoring.gate.verification import read_reference, verify
from edge_agent.authoring.project import Project, open_project
from edge_agent.authoring.quantising import (
    calibration,
    float_model,
    latency,
    node_choice,
    qdq,
    quantised_file,
    quantiser,
)
from edge_agent.authoring.quantising.quantised_file import Draft
from edge_agent.backends.base import ModelFile
from edge_agent.errors import BadInputError, ConfigError, ThresholdError
from edge_profiles.profile import NATIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.app import Agent
    from edge_agent.authoring.quantising.calibration import Calibration
    from edge_agent.authoring.quantising.latency import Latency
    from edge_agent.authoring.quantising.qdq import Operator, Weights
    from edge_agent.authoring.quantising.quantiser import Scheme
    from edge_agent.bundles import Progress
    from edge_agent.description import EngineFile
    from edge_agent.drift.report import DriftReport
    from edge_profiles.detect import Machine
    from edge_profiles.profile import DeviceProfile

# Below this the ranges of calibration hang on what few inputs happen to show.
_FEW: Final = 32
# Shows how far a stage of the work is, such as "calibrating".
Watch = Callable[[str], AbstractContextManager["Progress | None"]]


@dataclass(frozen=True, slots=True)
class QuantiseRequest:
    """What is to be made.

    Attributes:
        folder: The project.
        scheme: How numbers become eight bits.
        calibration: How ranges are found.
        at_most: How many samples are used.
        inputs: Folder of samples; None takes build.toml's.
        reference: The float model (.onnx); None takes build.toml's, or the project's own ONNX file.
        output: Path of the new file inside the project; None makes one up.
        force: Whether a model that the gate refuses is written all the same.
    """

    folder: Path
    scheme: Scheme
    calibration: Calibration
    at_most: int
    inputs: Path | None = None
    reference: Path | None = None
    output: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Quantised:
    """What was made.

    Attributes:
        written: Whether it is in the project now; the gate may have refused it.
        file: Its path inside the project.
        earlier: That of the file that model.yaml named before, which nothing needs now; None where
            there is none.
        reference: The float model.
        float_bytes: Size of the float model with its external data.
        int8_bytes: Size of the new one.
        operators: What became of the operators.
        weights: How the weights are scaled.
        samples: How many inputs it was calibrated and compared on.
        latency: How long both take on this machine.
        drift: How far the answers lie from those of the float model.
        may_saturate: Whether sums of products may overflow on this machine.
    """

    written: bool
    file: str
    earlier: str | None
    reference: Path
    float_bytes: int
    int8_bytes: int
    operators: tuple[Operator, ...]
    weights: Weights
    samples: int
    latency: Latency
    drift: DriftReport
    may_saturate: bool

    @property
    def wrong_golden(self) -> str | None:
        """What is wrong with its answer to the golden input, None where nothing is."""
        return next((one.golden for one in self.drift.engines if one.golden), None)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that is known before the long work begins."""

    project: Project
    reference: Path
    model: ModelFile
    proto: Any
    part: EngineFile
    entry: EngineFile
    files: Sequence[Path]


@dataclass(frozen=True, slots=True)
class _Made:
    """A quantised model that nobody has judged yet."""

    data: bytes
    operators: tuple[Operator, ...]
    weights: Weights


def quantise(agent: Agent, request: QuantiseRequest, watch: Watch) -> Quantised:
    """Quantises a project's model.

    Where that fails, or the gate refuses the result, nothing in the project has changed.

    Args:
        agent: The agent.
        request: What is to be made.
        watch: Shows the progress.

    Raises:
        ModelNotFoundError: There is no project.
        ConfigError: There are no inputs, or an option doesn't fit.
        BadInputError: The model or a sample can't be used.
        EngineUnavailableError: ONNX Runtime or the package onnx isn't installed here.
        OSError: The project can't be written.
    """
    plan = _plan(agent, request)
    made = _make(agent, request, plan, watch)
    draft = Draft(plan.project, plan.entry, made.data)
    with watch("comparing with the float model") as progress:
        drift = verify(agent, draft, plan.files, plan.model, progress)
    fast = _latency(agent, plan, draft)
    is_good = request.force or not drift.breaches
    file, earlier = plan.entry.file, None
    if is_good:
        file = quantised_file.publish(
            plan.project, plan.entry, made.data, plan.reference, request.inputs
        )
        earlier = quantised_file.superseded(plan.project, file, plan.reference)
    return Quantised(
        written=is_good,
        file=file,
        earlier=earlier,
        reference=plan.reference,
        float_bytes=len(plan.model.data) + sum(map(len, plan.model.external.values())),
        int8_bytes=len(made.data),
        operators=made.operators,
        weights=made.weights,
        samples=len(plan.files),
        latency=fast,
        drift=drift,
        may_saturate=not request.scheme.reduce_range
        and may_saturate(agent.loader.machine(), agent.profile),
    )


def require(made: Quantised, request: QuantiseRequest) -> None:
    """Refuses what lies beyond the thresholds of the contract; a golden score is told elsewhere.

    Raises:
        ThresholdError: It wasn't written; the message has the figures.
    """
    if made.written:
        return
    figures = "; ".join(map(str, made.drift.breaches))
    kind = "" if request.scheme.per_channel else "per-tensor "
    percentile = request.calibration.method == "percentile"
    advice = (
        f"try {'another --percentile' if percentile else '--calibration percentile'}; or write it "
        "with --force, find with `edge-agent model verify --per-layer` the first layer where the "
        "error jumps, and --exclude it: errors add up along the graph, so the last ones inherit "
        "theirs"
    )
    tensor_advice = "leave out --per-tensor; --force writes it all the same"
    raise ThresholdError(
        f"the {kind}INT8 model isn't written, its answers lie too far from the float model's "
        f"on {made.samples} inputs: {figures}",
        hint=advice if request.scheme.per_channel else tensor_advice,
    )


def _plan(agent: Agent, request: QuantiseRequest) -> _Plan:
    project = open_project(request.folder)
    path = _reference(project, request)
    if path.suffix.lower() == ".tflite":
        raise BadInputError(
            "is no .onnx file, and only such a one is quantised here",
            path=str(path),
            hint="name it: --reference FP32.onnx; a .tflite file is quantised by its converter",
        )
    model = read_reference(path)
    proto = float_model.load(model, str(path))
    fitted = references.fit(model, project.description, agent.notify)
    part = msgspec.structs.replace(fitted, file=str(path))
    name = quantised_file.choose_name(project, path, request.scheme, request.output)
    quantised_file.require_writable(project, name)
    entry = msgspec.structs.replace(part, file=name)
    quantised_file.require_changeable(project, entry)
    place = project.inputs(request.inputs)
    if place is None:
        raise ConfigError(
            "there are no inputs to calibrate with",
            path=str(project.folder),
            hint="name a folder of a hundred or more: --inputs DIR, or inputs in build.toml",
        )
    files = samples.files(project, place, request.at_most)
    if len(files) < _FEW:
        agent.notify(
            f"calibrated on {len(files)} input{'s' if len(files) > 1 else ''}: a hundred or more "
            "that look like the field's give ranges that hold there"
        )
    return _Plan(project, path, model, proto, part, entry, files)


def _reference(project: Project, request: QuantiseRequest) -> Path:
    given = project.reference(request.reference)
    if given:
        return given
    own = project.description.engine("onnx")
    if own is None:
        raise ConfigError(
            "has no ONNX model to quantise",
            path=str(project.folder),
            hint="name it: --reference FP32.onnx",
        )
    return project.folder / own.file


def _make(agent: Agent, request: QuantiseRequest, plan: _Plan, watch: Watch) -> _Made:
    where = str(plan.reference)
    ready = quantiser.prepare(plan.proto, where)
    floats = node_choice.excluded(ready, request.scheme.exclude)
    inputs = calibration.inputs_of(agent, plan.project, plan.part)
    with watch("calibrating") as progress:
        ranges = calibration.collect(ready, request.calibration, plan.files, inputs, progress)
    total = float_model.operators(ready)
    scheme = replace(request.scheme, exclude=floats)
    data = quantiser.quantise(ready, scheme, ranges, where)
    proto = onnx_graphs.parse(ModelFile(data), plan.entry.file)
    return _Made(data, qdq.count_operators(total, proto), qdq.count_weights(proto))


def _latency(agent: Agent, plan: _Plan, draft: Draft) -> Latency:
    loader = agent.loader
    made = loader.session(draft, plan.entry)
    given = loader.load_session(plan.model, draft.description, plan.part)
    request = samples.request(draft, plan.files[0], agent.limits)
    inputs = loader.pipeline(draft).prepare(request, plan.part.layout)
    return latency.compare(lambda: given.run(inputs), lambda: made.run(inputs), loader.threads)


def may_saturate(machine: Machine, profile: DeviceProfile) -> bool:
    """Tells whether a processor adds two products of eight bits in sixteen, which overflow.

    x86 does where its profile has no native INT8.
    Source: Intel SDM, VPMADDUBSW (saturates) against VPDPBUSD (VNNI, 32 bits).
    """
    int8 = profile.matrix(machine.cpu_features)["onnx"]["int8"]
    return machine.arch == "x86_64" and int8 != NATIVE
