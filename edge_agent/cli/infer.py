"""`edge-agent infer`, as Typer declares it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from edge_agent.cli import infer_run
from edge_agent.cli.infer_options import MAX_TOP_K, InferOptions


class Engine(StrEnum):
    """Choices of --engine."""

    auto = "auto"
    onnx = "onnx"
    tflite = "tflite"


def infer(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE", help="Files, globs or folders of images; - is standard input."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="BUNDLE",
            help="A path, NAME[@VERSION] of an installed one, or an alias of the daemon's.",
            show_default="the demo",
        ),
    ] = None,
    engine: Annotated[
        Engine | None,
        typer.Option(help="Engine; auto is the fastest measured.", show_default="auto"),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_TOP_K, help="Classes to print.", show_default="as the bundle says"
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", metavar="NAME=FILE", help="Input tensor: .npy, .npz or .json. Repeatable."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document a line.")] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Compute it, even if it was answered before.")
    ] = False,
) -> None:
    """Answer for images or tensors, from a signed bundle.

    Without --model the demo bundle answers: EfficientNet-Lite0, 1000 ImageNet classes.
    """
    if not images and not inputs:
        raise typer.BadParameter("give at least one image, or --input NAME=FILE")
    options = InferOptions(
        tuple(images or ()),
        model,
        engine.value if engine else None,
        top_k,
        tuple(inputs or ()),
        json,
        no_cache,
    )
    raise typer.Exit(infer_run.run(options))
