"""`edge-agent bundle`: make, sign, verify and look at bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import (
    bars,
    bundle_build,
    bundle_golden,
    bundle_init,
    bundle_lint,
    bundle_quick,
    bundle_sign,
    options,
    output,
)
from edge_agent.errors import ConfigError

bundle = typer.Typer(
    help="Make, sign, verify and inspect bundles.", no_args_is_help=True, rich_markup_mode=None
)

for _command in (
    bundle_init.init,
    bundle_golden.golden,
    bundle_lint.lint,
    bundle_build.build,
    bundle_quick.quick,
    bundle_sign.sign,
):
    bundle.command()(_command)

BundleArgument = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="A folder, a .tar, or an installed name.")
]


@bundle.command()
def verify(bundle: BundleArgument, json: options.JsonOption = False) -> None:
    """Check trust, every byte, model.yaml, and on each engine that it loads and answers rightly.

    The right answer is that of the bundle's golden input, if it has one.
    """
    agent = Agent(configuration.load(), output.notice)
    with (
        bars.progress(f"verifying {bundle}") as progress,
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
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A signed bundle's folder.")],
    archive: Annotated[Path, typer.Argument(metavar="OUT.tar", help="The archive to write.")],
    json: options.JsonOption = False,
) -> None:
    """Pack a trusted bundle into one .tar of its OCI layout; same files, same bytes."""
    if archive.suffix != ".tar" or archive.absolute().is_relative_to(folder.absolute()):
        raise ConfigError(
            "the archive must be a .tar outside the bundle's folder", path=str(archive)
        )
    agent = Agent(configuration.load(), output.notice)
    with bars.progress(f"verifying {folder}") as progress:
        opened = agent.open(str(folder.resolve()), progress)
    with opened, bars.progress(f"packing {folder}") as progress:
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
