"""`edge-agent apply`: has the daemon serve just these models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edge_agent.cli import failures, options, output


def apply(
    file: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--file",
            metavar="FILE",
            help="Desired state, YAML or JSON, - for standard input; see docs/SERVING.md.",
        ),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Forget the desired state: serve all that is installed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Only show what would change, and what can't.")
    ] = False,
    json: options.JsonOption = False,
) -> None:
    """Make the daemon's set of models so; what would change is shown first."""
    from edge_agent import config as configuration
    from edge_agent.cli.admin_socket import ask

    if (file is None) == (not clear) or (clear and dry_run):
        raise typer.BadParameter("give --file, or --clear alone")
    socket = configuration.load().admin_socket
    if file is None:
        done = ask(socket, "DELETE", "/desired")
    else:
        done = _make_so(socket, _read(file), is_dry_run=dry_run, is_shown=not json)
    if json:
        output.document({"schema": "edge-agent/apply/v1", "dry_run": dry_run, **done})
    elif file is None:
        _show(done["steps"])
    failed = [step for step in done["steps"] if step["error"]]
    for step in failed:
        output.notice(f"{told(step)}: {step['error']}")
    if failed:
        if not dry_run:
            output.hint("the daemon tries it again by itself")
        raise typer.Exit(failures.UNAVAILABLE)


def _make_so(socket: Path, wanted: Any, *, is_dry_run: bool, is_shown: bool) -> Any:
    from edge_agent.cli.admin_socket import ask

    if is_dry_run or is_shown:
        planned = ask(socket, "PUT", "/desired?dry_run=1", wanted)
        if is_shown:
            _show(planned["steps"])
        if is_dry_run:
            return planned
    return ask(socket, "PUT", "/desired", wanted)


def _read(file: str) -> Any:
    import sys

    import msgspec

    from edge_agent.errors import BadInputError
    from edge_agent.files import read_regular
    from edge_agent.serving import desired
    from edge_agent.yaml_subset import MAX_BYTES

    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            data = read_regular(Path(file), MAX_BYTES)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror or error}", path=file) from error
    return msgspec.to_builtins(desired.parse(data, file))


def _show(steps: list[dict[str, Any]]) -> None:
    for step in steps:
        output.line(told(step))
    if not steps:
        output.line("nothing to do")


def told(step: dict[str, Any]) -> str:
    """Returns a step in a line."""
    action, model, version, before = (step[k] for k in ("action", "model", "version", "before"))
    if action == "alias":
        sign = "+" if not before else "~" if version else "-"
        return f"{sign} {model} -> {version or before}"
    sign = {"load": "~" if before else "+", "add": "+", "unload": "-"}[action]
    was = f" (was {before})" if before else ""
    return f"{sign} {model} {version or 'active version'}{was}"
