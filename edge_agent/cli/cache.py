"""`edge-agent cache`: the answers that were given before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from edge_agent import config as configuration
from edge_agent.cli import options, output
from edge_agent.errors import UnavailableError
from edge_agent.serve_config import CacheConfig

if TYPE_CHECKING:
    from types import ModuleType

cache = typer.Typer(
    help="Show, list and remove remembered answers.", no_args_is_help=True, rich_markup_mode=None
)

_EXPORT_SCHEMA: Final = "edge-agent/cache-entry/v1"


@cache.command()
def stats(json: options.JsonOption = False) -> None:
    """Show how many answers are remembered, how often they were of use, and their size."""
    config = configuration.load()
    table = config.cache or CacheConfig()
    found = _inspection().look(config.cache_file)
    if json:
        output.document(
            {
                "schema": "edge-agent/cache-stats/v1",
                "path": str(config.cache_file),
                "mib": table.mib,
                "ttl_s": table.ttl_s,
                **found._asdict(),
            }
        )
        return
    limit = f"at most {table.mib} MiB" if table.mib else "switched off: mib = 0"
    rows = [
        ["answers", str(found.entries)],
        ["given again", f"{found.hits} times"],
        ["size", f"{found.size_bytes / 2**20:.1f} MiB ({limit})"],
        ["kept for", f"{table.ttl_s} s"],
        ["file", str(config.cache_file)],
    ]
    if found.rebuilt:
        rows.append(["made anew", f"{found.rebuilt}: {found.reason}"])
    output.table("Cache", ["", ""], rows)


@cache.command()
def clear(json: options.JsonOption = False) -> None:
    """Forget every answer; a running daemon forgets those in its memory within seconds."""
    count = _inspection().clear(configuration.load().cache_file)
    if json:
        output.document({"schema": "edge-agent/cache-clear/v1", "removed": count})
        return
    output.line(f"removed {count} answers")


@cache.command()
def export(
    json: Annotated[  # noqa: ARG001 - every command takes it
        bool, typer.Option("--json", help="Changes nothing: it is JSON anyway.")
    ] = False,
) -> None:
    """Print what is known of each answer, one JSON document a line: never inputs or answers."""
    for one in _inspection().entries(configuration.load().cache_file):
        output.document({"schema": _EXPORT_SCHEMA, **one})


def _inspection() -> ModuleType:
    try:
        from edge_agent.cache import inspection
    except ImportError as error:
        raise UnavailableError(
            f"Python has no SQLite here: {error}", hint="install its module sqlite3"
        ) from error
    return inspection
