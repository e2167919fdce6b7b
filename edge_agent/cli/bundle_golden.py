"""`edge-agent bundle golden`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import options, output, watchdog
from edge_agent.errors import ConfigError

_SHOWN = 8


def golden(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="The project's folder.")],
    sample: Annotated[
        Path | None,
        typer.Argument(
            metavar="SAMPLE",
            help="An image, or a .npz with an array for each input, whose answer you know.",
            show_default="the golden input that is there",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="A tensor: .npy, .npz or .json."),
    ] = None,
    tolerance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]T",
            help="Largest difference that counts as right, of an output or of all.",
            show_default="0.05 in a score, 1 % of an output's largest value",
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Keep an input with its answer, so that every device checks itself with it.

    The answer is that of the first engine; other engines, and build.toml's reference, are held
    against it. Look whether it is right: what is kept is what devices will take to be so.
    """
    from edge_agent.authoring.golden_input import GoldenRequest, keep

    asked = GoldenRequest(project, sample, _tensors(inputs or []), _tolerances(tolerance or []))
    agent = Agent(configuration.load(), output.notice)
    with watchdog.watched("answering"):
        kept = keep(agent, asked)
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-golden/v1",
                "path": str(project),
                "answered_by": kept.source,
                "labels": [
                    {"index": one.index, "label": one.label, "score": one.score}
                    for one in kept.labels
                ],
                "outputs": [
                    {"name": name, "dtype": str(value.dtype), "shape": list(value.shape)}
                    for name, value in kept.outputs.items()
                ],
                "tolerances": dict(kept.tolerances),
                "wrong": list(kept.wrong),
                "files": list(kept.files),
            }
        )
    else:
        for one in kept.labels:
            output.line(f"  {one.label}  {one.score:.3f}")
        for name, value in kept.outputs.items():
            shown = " ".join(f"{x:.6g}" for x in value.reshape(-1)[:_SHOWN].tolist())
            more = " …" if value.size > _SHOWN else ""
            output.line(f"  {name}  {value.dtype} {list(value.shape)}: {shown}{more}")
        allowed = ", ".join(f"{name} {value:g}" for name, value in kept.tolerances.items())
        output.line(f"the answer of {kept.source} is kept (tolerance: {allowed}); is it right?")
    for problem in kept.wrong:
        output.notice(f"{problem}; if that is as near as it should be, say --tolerance")


def _tensors(given: list[str]) -> dict[str, Path]:
    """Reads the --input options.

    Raises:
        ConfigError: One isn't NAME=FILE, or a name comes twice.
    """
    files: dict[str, Path] = {}
    for one in given:
        name, _, file = one.partition("=")
        if not name or not file:
            raise ConfigError(f"--input takes NAME=FILE, not {one!r}")
        if name in files:
            raise ConfigError(f"--input gives {name!r} twice")
        files[name] = Path(file)
    return files


def _tolerances(given: list[str]) -> dict[str, float]:
    """Reads the --tolerance options; one without a name is for all outputs.

    Raises:
        ConfigError: One isn't a finite number from 0 on, or a name comes twice.
    """
    found: dict[str, float] = {}
    for one in given:
        name, _, figure = one.rpartition("=")
        try:
            value = float(figure)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0) or name in found:
            raise ConfigError(
                f"--tolerance can't be {one!r}", hint="it is T or NAME=T, a number from 0 on"
            )
        found[name] = value
    return found
