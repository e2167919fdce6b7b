"""`edge-agent models`: the store of installed bundles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, failures, options, output

if TYPE_CHECKING:
    from collections.abc import Callable

models = typer.Typer(
    help="List, install and remove bundles.", no_args_is_help=True, rich_markup_mode=None
)


@models.command("list")
def list_models(json: options.JsonOption = False) -> None:
    """List installed bundles; the active version is the one that the bare name means."""
    installed = Agent(configuration.load(), output.notice).store.list()
    if json:
        output.document(
            {
                "schema": "edge-agent/models-list/v1",
                "models": [
                    {
                        "name": name,
                        "version": one.version,
                        "digest": one.digest,
                        "active": one.digest == installs.active,
                        "installed_at": one.installed_at,
                        "size_bytes": one.size_bytes,
                    }
                    for name, installs in installed.items()
                    for one in installs.bundles
                ],
            }
        )
        return
    if not installed:
        output.line("nothing is installed; edge-agent models install BUNDLE")
        return
    output.table(
        "Installed models",
        ["name", "version", "active", "digest", "size", "installed"],
        [
            [
                name,
                one.version,
                "yes" if one.digest == installs.active else "",
                one.digest[:23],
                f"{one.size_bytes / 2**20:.1f} MiB",
                one.installed_at[:16],
            ]
            for name, installs in installed.items()
            for one in installs.bundles
        ],
    )


@models.command()
def install(
    bundle: Annotated[
        Path, typer.Argument(metavar="PATH", help="A bundle: its folder, or a .tar of its layout.")
    ],
    json: options.JsonOption = False,
) -> None:
    """Verify a bundle, copy it into the store, try its golden input, and make it active.

    An older version becomes active again so. A running daemon follows.
    """
    agent = Agent(configuration.load(), output.notice)
    with bars.progress(f"verifying {bundle}") as progress:
        installed, fresh = agent.install(bundle, progress)
    ref = installed.ref
    if not json:
        how = "installed" if fresh else "was installed already; active now:"
        output.line(f"{how} {ref.name} {ref.version}  {ref.digest}")
    from edge_agent.cli import models_daemon  # brings an HTTP client

    document = {
        "schema": "edge-agent/models-install/v1",
        "name": ref.name,
        "version": ref.version,
        "digest": ref.digest,
        "already_installed": not fresh,
    }
    _tell(
        lambda: models_daemon.have_served(agent.config, ref.name, ref.version),
        document if json else None,
    )


@models.command()
def remove(
    model: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="What to remove.")],
    json: options.JsonOption = False,
) -> None:
    """Remove an installed bundle, or one version of it; a running daemon follows."""
    config = configuration.load()
    gone = Agent(config, output.notice).store.remove(model)
    name = model.partition("@")[0]
    if not json:
        for one in gone:
            output.line(f"removed {name} {one.version}  {one.digest}")
    from edge_agent.cli import models_daemon  # brings an HTTP client

    document = {"schema": "edge-agent/models-remove/v1", "removed": [one.digest for one in gone]}
    versions = [one.version for one in gone]
    _tell(
        lambda: models_daemon.have_unloaded(config, name, versions),
        document if json else None,
    )


def _tell(follow: Callable[[], str | None], document: dict[str, Any] | None) -> None:
    """Has the daemon, if one runs, follow the store, and says what came of it.

    Args:
        follow: Does so; returns what the document says of it.
        document: What is printed as JSON, with a member ``daemon``; None prints nothing.

    Raises:
        typer.Exit: The daemon can't; the store is as it was told to be all the same.
    """
    code = failures.OK
    daemon: str | dict[str, object] | None = None
    try:
        daemon = follow()
    except failures.expected() as error:
        daemon, code = {"error": failures.as_json(error)}, failures.report(error, False)
    if document is not None:
        output.document(document | {"daemon": daemon})
    if code:
        raise typer.Exit(code)
