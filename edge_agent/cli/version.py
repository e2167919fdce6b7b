"""`edge-agent --version`."""

from __future__ import annotations

from typing import Annotated

import typer

from edge_agent import __version__


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edge-agent {__version__}")
        raise typer.Exit


def version_option(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Runs only signed model bundles: verify, pre-process, INT8 inference."""
