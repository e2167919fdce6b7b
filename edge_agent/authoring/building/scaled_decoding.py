"""JPEG at a part of its size changes pixels: only where the drift gate sees what that does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent import samples
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.authoring.project import Project

_JPEG: Final = (".jfif", ".jpe", ".jpeg", ".jpg")


def require_measured(project: Project, inputs: Path | None, reference: Path | None) -> None:
    """Refuses a project that decodes so, where the gate can't measure it.

    Args:
        project: The project.
        inputs: Sample inputs that the gate is to run; None where it runs none.
        reference: The FP32 reference; None without one.

    Raises:
        BadInputError: It isn't compared with FP32 on any JPEG file.
    """
    rule = project.description.preprocess
    if rule is None or not rule.jpeg_scaled_decoding:
        return
    files = samples.files(project, inputs, samples.USUAL_COUNT) if inputs and reference else ()
    if not any(file.suffix.lower() in _JPEG for file in files):
        raise BadInputError(
            "preprocess.jpeg_scaled_decoding changes pixels, and nothing measures what that does "
            "to the answers",
            path=str(project.folder / DESCRIPTION_FILE),
            hint="give --inputs DIR with JPEG files, and --reference FILE; or --force",
        )
