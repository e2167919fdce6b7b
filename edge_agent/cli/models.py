"""`edge-agent models`: the store of installed bundles."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import bars, options, output
from edge_agent.errors import ModelNotFoundError

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
    """Verify a bundle, copy it into the store, try its golden input, and make it active."""
    agent = Agent(configuration.load(), output.notice)
    with bars.progress(f"verifying {bundle}") as progress:
        installed, fresh = agent.install(bundle, progress)
    ref = installed.ref
    if json:
        output.document(
            {
                "schema": "edge-agent/models-install/v1",
                "name": ref.name,
                "version": ref.version,
                "digest": ref.digest,
                "already_installed": not fresh,
            }
        )
    else:
        how = "installed" if fresh else "was installed already; active now:"
        output.line(f"{how} {ref.name} {ref.version}  {ref.digest}")
    _tell_daemon(agent.config.admin_socket, ref.name, "load")


def _tell_daemon(socket: Path, name: str, action: str, version: str = "") -> None:
    """Has the daemon, if one runs, serve what is active in the store, or no longer what has gone.

    Raises:
        AgentError: It can't; what it served before, it still serves.
    """
    from edge_agent.cli.admin_socket import DaemonAbsentError, ask

    wanted = {"parameters": {"version": version}} if version else {}
    try:
        desired = ask(socket, "GET", "/desired")["desired"]
        if desired is None:
            ask(socket, "POST", f"/v2/repository/models/{name}/{action}", wanted)
        else:
            ask(socket, "PUT", "/desired", desired)
    except DaemonAbsentError:
        return
    how = f"has {action}ed {name}" if desired is None else "serves what edge-agent apply told it"
    output.notice(f"the daemon {how}")


@models.command()
def remove(
    model: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="What to remove.")],
    json: options.JsonOption = False,
) -> None:
    """Remove an installed bundle, or one version of it."""
    config = configuration.load()
    gone = Agent(config, output.notice).store.remove(model)
    name, _, version = model.partition("@")
    if json:
        output.document(
            {"schema": "edge-agent/models-remove/v1", "removed": [one.digest for one in gone]}
        )
    else:
        for one in gone:
            output.line(f"removed {name} {one.version}  {one.digest}")
    with suppress(ModelNotFoundError):  # it was installed, but not served
        _tell_daemon(config.admin_socket, name, "unload", version)
