"""`edge-agent model verify`: the drift gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, options, output, watchdog
from edge_agent.errors import ConfigError
from edge_agent.samples import USUAL_COUNT

if TYPE_CHECKING:
    from edge_agent.bundles import Contents
    from edge_agent.drift.report import DriftReport


def verify(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="A project, a bundle, or an installed name.")
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of images or tensors, or one file.",
            show_default="a project's build.toml",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FP32",
            help="The float model to compare with: .onnx or .tflite.",
            show_default="a project's build.toml",
        ),
    ] = None,
    at_most: Annotated[
        int, typer.Option(min=1, metavar="N", help="Take so many inputs, evenly spread.")
    ] = USUAL_COUNT,
    per_layer: Annotated[
        bool, typer.Option("--per-layer", help="Also compare the layers of the ONNX file.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write the report there.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the errors there.")
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Compare every engine with the FP32 model, and with each other, on a folder of inputs.

    Exits with 6 where a threshold of the contract is broken, or a golden answer is wrong.
    """
    from edge_agent.authoring.gate.verification import require
    from edge_agent.authoring.subjects import open_subject

    for place in (report, picture):
        _require_folder(place)
    agent = Agent(configuration.load(), output.notice)
    with (
        bars.progress(f"verifying {subject}") as hashed,
        open_subject(agent, subject, hashed) as it,
    ):
        made = _measured(agent, it, inputs, reference, at_most, per_layer)
    _write(made, report, picture)
    if json:
        output.document(made.as_json())
    else:
        from edge_agent.cli.drift_tables import show

        show(made)
    require(made)


def _measured(
    agent: Agent,
    contents: Contents,
    inputs: Path | None,
    reference: Path | None,
    at_most: int,
    per_layer: bool,
) -> DriftReport:
    from edge_agent import samples
    from edge_agent.authoring.gate import verification
    from edge_agent.authoring.project import Project

    if isinstance(contents, Project):
        inputs, reference = contents.inputs(inputs), contents.reference(reference)
    if inputs is None:
        raise ConfigError("there is nothing to compare on", hint="say --inputs DIR")
    files = samples.files(contents, inputs, at_most)
    fp32 = None if reference is None else verification.read_reference(reference)
    layered = verification.require_layers(fp32, reference) if per_layer else None
    with watchdog.watched(f"comparing on {len(files)} inputs") as progress:
        made = verification.verify(agent, contents, files, fp32, progress)
        if layered is not None:
            found = verification.compare_layers(agent, contents, files, layered, progress)
            made = made.with_layers(found)
    return made


def _require_folder(place: Path | None) -> None:
    """Refuses a file that can't be written before minutes go into its content."""
    if place is not None and not place.parent.is_dir():
        raise ConfigError("lies in no folder that exists", path=str(place))


def _write(made: DriftReport, report: Path | None, picture: Path | None) -> None:
    from edge_signing.durable import write_durably

    if report is not None:
        write_durably(report, made.serialise())
    if picture is not None:
        from edge_agent.drift.picture import draw

        write_durably(picture, draw(made))
