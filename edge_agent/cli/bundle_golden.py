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
    image: Annotated[
        Path | None, typer.Argument(metavar="IMAGE", help="An image whose answer you know.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=FILE", help="A tensor: .npy, .npz or .json."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Largest difference that counts as right.",
            show_default="0.05 in a score, 1 % of an output's largest value",
        ),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Keep an input with its answer, so that every device checks itself with it.

    The answer is that of build.toml's reference, or else of the first engine. Look whether it is
    right: what is kept is what devices will take to be so.
    """
    from edge_agent.authoring.golden_input import keep

    if tolerance is not None and not math.isfinite(tolerance):
        raise ConfigError(f"--tolerance can't be {tolerance}", hint="it is a finite number")
    agent = Agent(configuration.load(), output.notice)
    with watchdog.watched("answering"):
        kept = keep(agent, project, image, _tensors(inputs or []), tolerance)
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
        output.notice(f"{problem}; if quantisation costs that much, say --tolerance")


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
