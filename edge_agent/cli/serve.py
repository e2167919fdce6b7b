"""`edge-agent serve`, as Typer declares it."""

from __future__ import annotations

import typer

from edge_agent.cli import serve_run


def serve() -> None:
    """Answer for all installed models, over Unix sockets and, where configured, TCP.

    Ends on SIGTERM or Ctrl-C, when requests in the air are done; SIGHUP reads the configuration and
    the keyring again.
    """
    raise typer.Exit(serve_run.run())
