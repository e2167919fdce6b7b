"""`edge-agent bundle sign`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.cli import bars, key_files, options, output
from edge_agent.errors import BadInputError


def sign(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle's folder, or .tar.")],
    key: Annotated[str, typer.Option(metavar="KEY", help="Private key: a name, or a .key file.")],
    passphrase_file: key_files.PassphraseFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Drop signatures over what the bundle was before.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Sign every file of a bundle; signatures of other keys over the same files stay."""
    from edge_agent.authoring.building.listing import require_current
    from edge_agent.authoring.recipe import RECIPE_FILE
    from edge_agent.bundles import require_files
    from edge_agent.cli.bundle_inspect import describe
    from edge_signing.bundle import sign_archive, sign_directory
    from edge_signing.sources import open_source

    if os.path.lexists(bundle / RECIPE_FILE):
        raise BadInputError(
            "is a project",
            path=str(bundle),
            hint=f"make a bundle of it: edge-agent bundle build {bundle}",
        )
    with open_source(bundle) as source:
        described = describe(source)
        require_files(described, source.names())
        require_current(source, described.name)
    private = key_files.private_key(configuration.load(), key, passphrase_file)
    put_signature = sign_directory if bundle.is_dir() else sign_archive
    with bars.progress(f"signing {bundle}") as progress:
        signed = put_signature(bundle, described.name, private, replace, progress)
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
