"""`edge-agent bundle build`."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import key_files, options, output, watchdog
from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from edge_agent.authoring.building.build import Built

# Source: https://reproducible-builds.org/specs/source-date-epoch/
_EPOCH: Final = "SOURCE_DATE_EPOCH"
_MAX_SECONDS: Final = 253_402_300_799  # the last second of the year 9999


def build(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="The project's folder.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write.", show_default="PROJECT.bundle"),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Sample inputs of the drift gate, if not build.toml's."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The FP32 model, if not build.toml's.")
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Don't compare answers with the reference's.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier build; build what drifts.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Private key: a name, or a .key file.")
    ] = None,
    passphrase_file: key_files.PassphraseFile = None,
    json: options.JsonOption = False,
) -> None:
    """Check a project and write its bundle: a folder, and the same as one .tar.

    The same project, agent and engine versions give the same bytes on machines of one kind (CPU),
    whatever path, date, locale: figures that the gate measured are in the bundle. Without --key the
    bundle is unsigned: `bundle sign` signs folder or .tar later, where the key is.
    """
    from edge_agent.authoring.building.build import BuildRequest
    from edge_agent.authoring.building.build import build as run

    agent = Agent(configuration.load(), output.notice)
    private = key_files.private_key(agent.config, key, passphrase_file) if key is not None else None
    request = BuildRequest(
        project,
        out,
        inputs,
        reference,
        verify=not no_verify,
        force=force,
        key=private,
        created=_created(),
    )
    with watchdog.watched("comparing answers", armed=False) as progress:
        built = run(agent, request, progress)
    for warning in built.warnings:
        output.notice(f"{project / warning.place}: {warning.code}: {warning.message}")
    if json:
        output.document(
            {
                "schema": "edge-agent/bundle-build/v1",
                "name": built.name,
                "version": built.version,
                "digest": built.digest,
                "keyid": built.keyid,
                "path": str(built.path),
                "archive": str(built.archive),
                "files": list(built.files),
                "drift_ok": built.drift,
                "warnings": [str(one) for one in built.warnings],
            }
        )
        return
    _tell(built)


def _tell(built: Built) -> None:
    output.line(f"built {built.name} {built.version}  {built.digest}")
    output.line(f"  {built.path}/ with {len(built.files)} files, and {built.archive}")
    if built.keyid:
        output.line(f"  signed by {built.keyid[:16]}")
    else:
        output.line(f"sign it: edge-agent bundle sign {quote(str(built.archive))} --key KEY")


def _created() -> int:
    """Returns the time that the bundle shall carry: none of now, or it couldn't be built twice.

    Raises:
        ConfigError: SOURCE_DATE_EPOCH is no time.
    """
    given = os.environ.get(_EPOCH, "") or "0"
    if not (given.isascii() and given.isdigit() and int(given[:13]) <= _MAX_SECONDS):
        raise ConfigError(f"{_EPOCH} can't be {given!r}", hint="it is seconds since 1970")
    return int(given[:13])
