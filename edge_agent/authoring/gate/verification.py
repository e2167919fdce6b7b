"""The drift gate: every engine of a model on a folder of inputs, against the FP32 reference."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from edge_agent.authoring import source_files
from edge_agent.authoring.gate import engines as gate_engines
from edge_agent.authoring.gate import layers, references
from edge_agent.authoring.gate.sample_inputs import SampleReader, named
from edge_agent.drift.comparison import Comparison
from edge_agent.drift.report import DriftReport, EngineDrift, Inputs, Layers
from edge_agent.errors import BadInputError, ConfigError, ModelFileError, ThresholdError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edge_agent.app import Agent
    from edge_agent.authoring.gate.engines import Loaded
    from edge_agent.backends.base import ModelFile
    from edge_agent.bundles import Contents, Progress
    from edge_agent.loading import ModelLoader
    from edge_agent.types import Tensor

_NAME_IT: Final = "name it: --reference FP32.onnx"


def read_reference(path: Path) -> ModelFile:
    """Reads an FP32 model: an ``.onnx`` file with its external data, or a ``.tflite`` file.

    Raises:
        BadInputError: It can't be read, or is neither.
        ModelFileError: It is damaged, or its data lies outside its folder.
    """
    engine = source_files.ENGINES.get(path.suffix.lower())
    if engine is None:
        raise BadInputError("must be an .onnx or a .tflite file, to be a reference", path=str(path))
    model = source_files.read_model(path)
    if references.engine_of(model) != engine:
        raise ModelFileError(f"is no {path.suffix.lower()} file by its content", path=str(path))
    return model


def require_layers(reference: ModelFile | None, path: Path | None) -> ModelFile:
    """Returns the reference, if its layers can be compared.

    Raises:
        ConfigError: There is none, or it is no ONNX file.
    """
    if reference is None:
        raise ConfigError("layers can't be compared without the FP32 reference", hint=_NAME_IT)
    if references.engine_of(reference) != "onnx":
        raise ConfigError(
            "layers are compared with those of an ONNX file only", path=str(path), hint=_NAME_IT
        )
    return reference


def verify(
    agent: Agent,
    contents: Contents,
    samples: Sequence[Path],
    reference: ModelFile | None,
    progress: Progress | None = None,
) -> DriftReport:
    """Runs every engine that is installed here on every input, on one thread, and compares.

    Args:
        agent: The agent.
        contents: The bundle or project.
        samples: Files of sample inputs, as `samples.files` finds them.
        reference: The FP32 model; without one the engines are compared with each other only.
        progress: Called with runs done and runs in all.

    Raises:
        BadInputError: There is no input, or one can't be used; the error names it.
        EngineUnavailableError: No engine of the model is installed here, or that of the reference
            isn't.
        ModelFileError: An engine refuses its file, or the reference doesn't fit model.yaml.
        EngineFailedError: An engine fails on an input.
    """
    if not samples:
        raise BadInputError("there is no input to compare answers on")
    loader = _on_one_thread(agent)
    loaded = gate_engines.load(loader, contents, reference)
    comparison = Comparison(contents.description, [one.part.engine for one in loaded.engines])
    digest = _run(comparison, loaded, SampleReader(loader, contents), samples, progress)
    return DriftReport(
        name=contents.ref.name,
        version=contents.ref.version,
        inputs=Inputs(len(samples), digest),
        reference=None if reference is None else digest_of(reference),
        thresholds=contents.description.contract.drift,
        engines=_engines(comparison, loaded, contents, loader),
        consistency=tuple(comparison.pairs(_steps(loaded))),
        has_golden=contents.description.golden is not None,
        notes=loaded.notes,
    )


def compare_layers(
    agent: Agent,
    contents: Contents,
    samples: Sequence[Path],
    reference: ModelFile,
    progress: Progress | None = None,
) -> Layers:
    """Compares the tensors inside the ONNX file with the reference's, an ONNX file too.

    For arguments see `verify`.

    Raises:
        BadInputError: An input can't be used; the error names it.
        EngineUnavailableError: ONNX Runtime or the package onnx isn't installed here.
        ModelFileError: ONNX Runtime refuses a file, or the reference doesn't fit model.yaml.
        EngineFailedError: A graph fails on an input.
    """
    notes = [
        f"layers of {part.engine} aren't compared: its tensors have other names"
        for part in contents.description.engines
        if part.engine != "onnx"
    ]
    part = contents.description.engine("onnx")
    if part is None:
        return Layers((), tuple(notes))
    right = layers.Graph(reference, references.fit(reference, contents.description))
    quantised = layers.Graph(contents.model_file(part), part)
    reader = SampleReader(agent.loader, contents)
    found = layers.compare(right, quantised, reader, samples, progress)
    if not found:
        notes.append("no layer is compared: the ONNX file has no tensor's name of the reference")
    return Layers(found, tuple(notes))


def require(report: DriftReport) -> None:
    """Refuses a report in which a threshold is broken.

    Raises:
        ThresholdError: One is, or an engine answers the golden input wrongly; its message has the
            figures of each.
    """
    if report.ok is not False:
        return
    model = f"{report.name} {report.version}"
    if report.breaches:
        broken = [*map(str, report.breaches), *report.wrong_golden]
        raise ThresholdError(
            f"{model} drifts: {'; '.join(broken)}",
            hint="contract.drift in model.yaml sets the thresholds",
        )
    raise ThresholdError(
        f"{model}: {'; '.join(report.wrong_golden)}",
        hint="if the new answer is right, keep it: edge-agent bundle golden PROJECT",
    )


def digest_of(model: ModelFile) -> str:
    """Returns ``sha256:…`` of a model file and, in the order of their names, its external data."""
    total = sha256(model.data)
    for _, data in sorted(model.external.items()):
        total.update(data)
    return f"sha256:{total.hexdigest()}"


def _on_one_thread(agent: Agent) -> ModelLoader:
    """Returns what makes sessions: how sums are split among threads changes their last digits."""
    return msgspec.structs.replace(agent.loader, threads=1)


def _run(
    comparison: Comparison,
    loaded: Loaded,
    reader: SampleReader,
    samples: Sequence[Path],
    progress: Progress | None,
) -> str:
    """Runs everything on every input, and returns the digest of names and contents."""
    total = sha256()
    for done, file in enumerate(samples, start=1):
        with named(file):
            inputs = reader.read(file)
            whole = inputs.decoded_whole()
            right = loaded.reference.run(whole) if loaded.reference else None
            answers: dict[str, dict[str, Tensor]] = {
                one.part.engine: one.run(inputs) for one in loaded.engines
            }
            comparison.add(file.name, answers, right)
        total.update(file.name.encode(errors="surrogateescape") + b"\0" + inputs.digest())
        if progress:
            progress(done, len(samples))
    return f"sha256:{total.hexdigest()}"


def _engines(
    comparison: Comparison, loaded: Loaded, contents: Contents, loader: ModelLoader
) -> tuple[EngineDrift, ...]:
    """Returns what there is of every engine, in the order of model.yaml."""
    found = {name: EngineDrift(name, None, one.problem) for name, one in loaded.missing.items()}
    for one in loaded.engines:
        name = one.part.engine
        found[name] = EngineDrift(
            engine=name,
            version=one.version,
            outputs=comparison.outputs(name),
            not_finite=comparison.not_finite(name),
            worst=comparison.worst(name),
            golden=gate_engines.wrong_golden(one, contents, loader),
        )
    return tuple(found[part.engine] for part in contents.description.engines)


def _steps(loaded: Loaded) -> dict[tuple[str, str], float | None]:
    return {
        (one.part.engine, name): step for one in loaded.engines for name, step in one.steps.items()
    }
