"""What a command of authoring works on: a trusted bundle, or a project of its author."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent.authoring import project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_agent.app import Agent
    from edge_agent.bundles import Contents, Progress


@contextmanager
def open_subject(
    agent: Agent, reference: str, progress: Progress | None = None
) -> Iterator[Contents]:
    """Opens a project, which nobody signed yet, or a bundle, if it can be trusted.

    Args:
        agent: The agent.
        reference: A path, ``NAME[@VERSION]`` of an installed bundle, or the demo's name.
        progress: Called with bytes done and bytes in all while a bundle is hashed.

    Yields:
        The model.

    Raises:
        ModelNotFoundError: There is none.
        DescriptionError: Its model.yaml breaks a rule, or has holes.
        edge_signing.errors.SigningError: The bundle can't be trusted; the error says why.
    """
    if reference.startswith((".", "/")) and project.is_project(Path(reference)):
        agent.notify(f"{reference} is an unsigned project: its files are taken as yours")
        yield project.open_project(Path(reference))
        return
    with agent.open(reference, progress) as bundle:
        yield bundle
