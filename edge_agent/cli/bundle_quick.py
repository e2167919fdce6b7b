"""`edge-agent bundle quick`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import key_files, options, output
from edge_agent.cli.model_choices import Layout, Preset


def quick(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A classifier of images.")],
    labels: Annotated[
        Path, typer.Option(help="Class names: a JSON array, or one a line.", metavar="FILE")
    ],
    name: Annotated[
        str | None, typer.Option(help="Bundle name.", show_default="local/ and the file's name")
    ] = None,
    version: Annotated[str, typer.Option(help="Semantic version.")] = "0.1.0",
    preset: Annotated[
        Preset, typer.Option(help="Scaling of pixel values of a float model.")
    ] = Preset.imagenet,
    layout: Annotated[
        Layout | None, typer.Option(help="Order of axes, where the file leaves it open.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Image side, where the file leaves it open.")
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option(metavar="IMAGE", help="Keep this image with its answer as the health probe."),
    ] = None,
    output_name: Annotated[
        str | None,
        typer.Option("--output", metavar="NAME", help="Needed where several outputs could fit."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write.", show_default="MODEL.bundle"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Private key: a name, or a .key file.")
    ] = None,
    passphrase_file: key_files.PassphraseFile = None,
    json: options.JsonOption = False,
) -> None:
    """Make a signed bundle of a bare ONNX classifier, in one step.

    Without --key a development key of this machine signs, which is made at the first use and
    trusted for local/* only.
    """
    from edge_agent.authoring.development_key import DEV_KEY
    from edge_agent.authoring.quick import QuickRequest, make

    agent = Agent(configuration.load(), output.notice)
    order = layout.value if layout else None
    private = key_files.private_key(agent.config, key, passphrase_file) if key is not None else None
    made = make(
        agent,
        QuickRequest(
            model,
            labels,
            name=name,
            version=version,
            preset=preset.value,
            layout=order,
            size=size,
            golden=golden,
            output=output_name,
            out=out,
            key=private,
        ),
    )
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-quick/v1",
                "name": made.name,
                "version": made.version,
                "digest": made.digest,
                "keyid": made.keyid,
                "path": str(made.path),
                "assumptions": list(made.assumptions),
                "golden_answer": made.golden_answer,
            }
        )
        return
    for assumption in made.assumptions:
        output.line(f"assumed: {assumption}")
    if made.golden_answer:
        output.line(f"golden answer: {made.golden_answer}; is that right?")
    output.line(f"signed {made.name} {version}  {made.digest}")
    path = quote(str(made.path if made.path.is_absolute() else f"./{made.path}"))
    if not _is_trusted(agent, made.path):
        signer = quote(
            (key or DEV_KEY).removesuffix(".key") + (".pub" if "/" in (key or "") else "")
        )
        output.line(f"trust it: edge-agent keys trust {signer} --for {quote(made.name)} --first")
    output.line(f"try it: edge-agent infer IMAGE --model {path}")


def _is_trusted(agent: Agent, path: Path) -> bool:
    from edge_signing.errors import NotTrusted

    try:
        agent.open(str(path if path.is_absolute() else f"./{path}")).verified.close()
    except NotTrusted:
        return False
    return True
