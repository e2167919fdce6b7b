"""The work of `edge-agent serve`."""

from __future__ import annotations


def run() -> int:
    """Runs the daemon until it is told to stop, and returns the exit code.

    Raises:
        UnavailableError: A package that it needs isn't installed.
        ConfigError: The configuration can't be used, or a socket can't be made.
    """
    try:
        from edge_agent.daemon.run import run as serve
    except ModuleNotFoundError as error:
        from edge_agent.errors import UnavailableError

        raise UnavailableError(
            f"the daemon needs the package {error.name}",
            hint="pip install aiosqlite prometheus-client python-multipart starlette uvicorn",
        ) from error
    return serve()
