"""`edge-agent bundle`: make, sign, verify and look at bundles."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import key_files, options, output
from edge_agent.errors import ConfigError

bundle = typer.Typer(
    help="Make, sign, verify and inspect bundles.", no_args_is_help=True, rich_markup_mode=None
)

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="A folder, a .tar, or an installed name.")
]


class Preset(StrEnum):
    """Choices of --preset: how pixels become numbers."""

    imagenet = "imagenet"
    zero_one = "zero-one"
    minus_one_one = "minus-one-one"
    efficientnet_lite = "efficientnet-lite"


class Layout(StrEnum):
    """Choices of --layout."""

    NCHW = "NCHW"
    NHWC = "NHWC"


@bundle.command()
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


@bundle.command()
def sign(
    folder: Annotated[Path, typer.Argument(help="The bundle's folder, with its model.yaml.")],
    key: Annotated[str, typer.Option(metavar="KEY", help="Private key: a name, or a .key file.")],
    passphrase_file: key_files.PassphraseFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop signatures over what the bundle was before.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Sign every file of a bundle; signatures of other keys over the same files stay."""
    from edge_agent.bundles import require_files
    from edge_agent.cli.bundle_inspect import describe
    from edge_signing.bundle import sign_directory
    from edge_signing.sources import DirectorySource

    with DirectorySource(folder) as source:
        described = describe(source)
        require_files(described, source.names())
    private = key_files.private_key(configuration.load(), key, passphrase_file)
    with output.progress(f"signing {folder}") as progress:
        signed = sign_directory(folder, described.name, private, replace, progress)
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-sign/v1",
                "name": described.name,
                "digest": signed.digest,
                "keyid": signed.keyid,
                "file": signed.file,
            }
        )
        return
    output.line(f"signed {described.name} {described.version}  {signed.digest}")
    output.line(f"  by {signed.keyid[:16]} in {signed.file}")


@bundle.command()
def verify(bundle: BundleArgument, json: options.JsonOption = False) -> None:
    """Check trust, every byte, model.yaml, and on each engine that it loads and answers rightly.

    The right answer is that of the bundle's golden input, if it has one.
    """
    agent = Agent(configuration.load(), output.notice)
    with (
        output.progress(f"verifying {bundle}") as progress,
        agent.open(bundle, progress) as opened,
    ):
        signers = opened.verified.verdict.signers
        measured = agent.check(opened)
        has_golden = opened.description.golden is not None
        ref = opened.ref
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-verify/v1",
                "name": ref.name,
                "version": ref.version,
                "digest": ref.digest,
                "trusted": True,
                "signers": list(signers),
                "has_golden": has_golden,
                "engines": [
                    {"engine": one.engine, "ok": one.problem is None, "problem": one.problem}
                    for one in measured
                ],
            }
        )
        return
    output.line(f"trusted: {ref.name} {ref.version}  {ref.digest}")
    output.line(f"  signed by {', '.join(keyid[:16] for keyid in signers)}")
    fine = "the golden answer is right" if has_golden else "loads; no golden input to try"
    for one in measured:
        output.line(f"  {one.engine}: {one.problem or fine}")


@bundle.command()
def inspect(bundle: BundleArgument, json: options.JsonOption = False) -> None:
    """Show what a bundle says of itself, trusted or not; no engine is loaded."""
    from edge_agent.cli.bundle_inspect import inspect as run

    run(Agent(configuration.load(), output.notice), bundle, json)


@bundle.command()
def pack(
    folder: Annotated[Path, typer.Argument(help="A signed bundle's folder.")],
    archive: Annotated[Path, typer.Argument(metavar="OUT.tar", help="The archive to write.")],
    json: options.JsonOption = False,
) -> None:
    """Pack a trusted bundle into one .tar of its OCI layout; same files, same bytes."""
    if archive.suffix != ".tar" or archive.absolute().is_relative_to(folder.absolute()):
        raise ConfigError(
            "the archive must be a .tar outside the bundle's folder", path=str(archive)
        )
    agent = Agent(configuration.load(), output.notice)
    with output.progress(f"verifying {folder}") as progress:
        opened = agent.open(str(folder.resolve()), progress)
    with opened, output.progress(f"packing {folder}") as progress:
        digest = opened.verified.pack(archive, progress)
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-pack/v1",
                "path": str(archive),
                "manifest_digest": digest,
            }
        )
        return
    output.line(f"wrote {archive}  (OCI manifest {digest})")


@bundle.command()
def schema() -> None:
    """Print the JSON Schema of model.yaml."""
    from json import dumps

    from edge_agent.description import json_schema

    output.plain(dumps(json_schema(), indent=2))
