"""`edge-agent serve`, as Typer declares it."""

from __future__ import annotations

import typer

from edge_agent.cli import serve_run


def serve() -> None:
    """Answer for installed models, over Unix sockets and, where configured, TCP.

    For all of them, or for those that `edge-agent apply` named; where none is installed, for the
    demo.

    Ends on SIGTERM or Ctrl-C, when requests in the air are done; SIGHUP reads the configuration and
    the keyring again.
    """
    raise typer.Exit(serve_run.run())
