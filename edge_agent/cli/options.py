"""Options that several commands have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

JsonOption = Annotated[bool, typer.Option("--json", help="Answer as one JSON document.")]


def require_folder(file: Path) -> None:
    """Refuses a file to write that lies nowhere, before long work goes into its content.

    Raises:
        ConfigError: Its folder doesn't exist.
    """
    if not file.absolute().parent.is_dir():
        raise ConfigError("lies in no folder that exists", path=str(file))
