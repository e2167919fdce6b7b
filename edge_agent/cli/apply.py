"""`edge-agent apply`: has the daemon serve just these models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edge_agent.cli import options, output


def apply(
    file: Annotated[
        Path,
        typer.Option("-f", "--file", help="Desired state, YAML or JSON; see docs/SERVING.md."),
    ],
    dry_run: Annotated[bool, typer.Option(help="Only show what would change.")] = False,
    json: options.JsonOption = False,
) -> None:
    """Make the daemon's set of models so; what would change is shown first."""
    import msgspec

    from edge_agent import config as configuration
    from edge_agent.cli.admin_socket import ask
    from edge_agent.errors import BadInputError, UnavailableError
    from edge_agent.files import read_regular
    from edge_agent.serving import desired
    from edge_agent.yaml_subset import MAX_BYTES

    try:
        data = read_regular(file, MAX_BYTES)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror or error}", path=str(file)) from error
    wanted = msgspec.to_builtins(desired.parse(data, str(file)))
    socket = configuration.load().admin_socket
    planned = ask(socket, "PUT", "/desired?dry_run=1", wanted)
    if not json:
        _show(planned["steps"])
    done = planned if dry_run else ask(socket, "PUT", "/desired", wanted)
    if json:
        output.document({"schema": "edge-agent/apply/v1", **done})
    failed = [step for step in done["steps"] if step.get("error")]
    for step in failed:
        output.notice(f"{_told(step)}: {step['error']}")
    if failed:
        raise UnavailableError(
            f"{len(failed)} of {len(done['steps'])} steps failed; the daemon tries them again"
        )


def _show(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        output.line(_told(step))
    if not steps:
        output.line("nothing to do")


def _told(step: dict[str, Any]) -> str:
    action, model, version, before = (step[k] for k in ("action", "model", "version", "before"))
    if action == "alias":
        return f"{'~' if version and before else '+' if version else '-'} {model} -> {version}"
    sign = {"load": "~" if before else "+", "add": "+", "unload": "-"}[action]
    was = f" (was {before})" if before else ""
    return f"{sign} {model} {version or 'active version'}{was}"
