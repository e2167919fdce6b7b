"""The drift gate: every engine of a model on a folder of inputs, against the FP32 reference."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from edge_agent.authoring import source_files
from edge_agent.authoring.gate import engines as gate_engines
from edge_agent.authoring.gate import layers
from edge_agent.authoring.gate.sample_inputs import SampleReader, named
from edge_agent.drift.comparison import Comparison
from edge_agent.drift.report import DriftReport, EngineDrift, Inputs
from edge_agent.errors import BadInputError, ConfigError, ThresholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edge_agent.app import Agent
    from edge_agent.authoring.gate.engines import GateEngine
    from edge_agent.backends.base import ModelFile
    from edge_agent.bundles import Contents
    from edge_agent.drift.report import LayerDrift
    from edge_agent.types import Tensor

    Outputs = Mapping[str, Tensor]
    Progress = Callable[[int, int], None]


def read_reference(path: Path) -> ModelFile:
    """Reads an FP32 model: an ``.onnx`` file with its external data.

    Raises:
        BadInputError: It can't be read, or is no ``.onnx`` file.
        ModelFileError: It is damaged, or its data lies outside its folder.
    """
    if path.suffix.lower() != ".onnx":
        raise BadInputError("must be an .onnx file, to be a reference", path=str(path))
    return source_files.read_model(path)


def verify(
    agent: Agent,
    contents: Contents,
    samples: Sequence[Path],
    reference: ModelFile | None,
    *,
    per_layer: bool = False,
    progress: Progress | None = None,
) -> DriftReport:
    """Runs every engine that is installed here on every input, on one thread, and compares.

    Args:
        agent: The agent.
        contents: The bundle or project.
        samples: Files of sample inputs, as `samples.files` finds them.
        reference: The FP32 model; without one the engines are compared with each other only.
        per_layer: Also compare the tensors inside the ONNX file with the reference's.
        progress: Called with runs done and runs in all; layers are counted anew.

    Raises:
        BadInputError: There is no input, or one can't be used; the error names it.
        ConfigError: Layers were asked for without a reference.
        EngineUnavailableError: No engine of the model is installed here, or ONNX Runtime isn't,
            which runs the reference; or the onnx package, which layers need.
        ModelFileError: An engine refuses its file, or the reference doesn't fit model.yaml.
        EngineFailedError: An engine fails on an input.
    """
    if not samples:
        raise BadInputError("there is no input to compare answers on")
    if per_layer and reference is None:
        raise ConfigError("layers can't be compared without the FP32 reference")
    # One thread: how sums are split among threads changes their last digits.
    loader = msgspec.structs.replace(agent.loader, threads=1)
    notes: list[str] = []
    engines, missing = gate_engines.load(loader, contents, notes)
    right = None
    if reference is not None:
        right = gate_engines.load_reference(loader, contents.description, reference)
    else:
        notes.append("no FP32 reference was given: engines are compared with each other only")
    reader = SampleReader(loader, contents)
    comparison = Comparison(contents.description, [one.part.engine for one in engines])
    digest = _run(comparison, engines, right, reader, samples, progress)
    compared = {name: EngineDrift(name, None, one.problem) for name, one in missing.items()}
    for one in engines:
        wrong = gate_engines.wrong_golden(one, contents, loader)
        compared[one.part.engine] = _drift(one, comparison, wrong)
    found: tuple[LayerDrift, ...] = ()
    if per_layer and reference is not None and right is not None:
        graph = layers.Graph(reference, right.part)
        found = _layers(graph, contents, reader, samples, notes, progress)
    return DriftReport(
        name=contents.ref.name,
        version=contents.ref.version,
        inputs=Inputs(len(samples), digest),
        reference=None if reference is None else digest_of(reference),
        thresholds=contents.description.contract.drift,
        engines=tuple(compared[part.engine] for part in contents.description.engines),
        consistency=tuple(comparison.pairs(_steps(engines))),
        has_golden=contents.description.golden is not None,
        layers=found,
        notes=tuple(notes),
    )


def require(report: DriftReport) -> None:
    """Refuses a report in which a threshold is broken.

    Raises:
        ThresholdError: One is, or an engine answers the golden input wrongly; its message has the
            figures of each.
    """
    if not report.ok:
        broken = [*map(str, report.breaches), *report.wrong_golden]
        raise ThresholdError(
            f"{report.name} {report.version} drifts: {'; '.join(broken)}",
            hint="the thresholds stand under contract.drift in model.yaml",
        )


def digest_of(model: ModelFile) -> str:
    """Returns ``sha256:…`` of a model file and, in the order of their names, its external data."""
    total = sha256(model.data)
    for _, data in sorted(model.external.items()):
        total.update(data)
    return f"sha256:{total.hexdigest()}"


def _drift(engine: GateEngine, comparison: Comparison, wrong_golden: str | None) -> EngineDrift:
    name = engine.part.engine
    return EngineDrift(
        engine=name,
        version=engine.version,
        outputs=comparison.outputs(name),
        not_finite=comparison.not_finite(name),
        worst=comparison.worst(name),
        golden=wrong_golden,
    )


def _steps(engines: Sequence[GateEngine]) -> dict[tuple[str, str], float | None]:
    return {(one.part.engine, name): step for one in engines for name, step in one.steps.items()}


def _run(
    comparison: Comparison,
    engines: Sequence[GateEngine],
    reference: GateEngine | None,
    reader: SampleReader,
    samples: Sequence[Path],
    progress: Progress | None,
) -> str:
    """Runs everything on every input, and returns the digest of names and contents."""
    total = sha256()
    for done, file in enumerate(samples, start=1):
        with named(file):
            inputs = reader.read(file)
            right = reference.run(inputs) if reference else None
            answers: dict[str, Outputs] = {one.part.engine: one.run(inputs) for one in engines}
            comparison.add(file.name, answers, right)
        total.update(file.name.encode(errors="surrogateescape") + b"\0" + inputs.digest())
        if progress:
            progress(done, len(samples))
    return f"sha256:{total.hexdigest()}"


def _layers(
    reference: layers.Graph,
    contents: Contents,
    reader: SampleReader,
    samples: Sequence[Path],
    notes: list[str],
    progress: Progress | None,
) -> tuple[LayerDrift, ...]:
    notes += [
        f"layers of {part.engine} aren't compared: its tensors have other names"
        for part in contents.description.engines
        if part.engine != "onnx"
    ]
    part = contents.description.engine("onnx")
    if part is None:
        return ()
    quantised = layers.Graph(contents.model_file(part), part)
    found = layers.compare(reference, quantised, reader, samples, progress)
    if not found:
        notes.append("no layer is compared: the ONNX file has no tensor's name of the reference")
    return found
