"""The files of a new bundle: those of its project, its bill of materials, the drift report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from edge_agent.authoring import sections, staging
from edge_agent.authoring.building import sbom
from edge_agent.authoring.project import Project, read_file
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import digest_of_pipeline
from edge_agent.drift.picture import draw
from edge_agent.errors import BadInputError, ConfigError
from edge_agent.yaml_subset import MAX_BYTES

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.drift.report import DriftReport

REPORTS: Final = ("reports/drift.json", "reports/drift.svg")
_RESERVED: Final = (sbom.SBOM_FILE, *REPORTS)
_BLOCK: Final = 1 << 20
_FILE_MODE: Final = 0o644


def fill(
    content: Path, project: Project, drift: DriftReport | None, created: int
) -> tuple[str, ...]:
    """Writes every file but signatures; the same project gives the same bytes.

    Args:
        content: An empty folder.
        project: The project.
        drift: The report of the drift gate, None where it didn't run.
        created: The time in the bill of materials, seconds since 1970.

    Returns:
        The files' paths, sorted.

    Raises:
        BadInputError: A file of the project can't be read.
        ConfigError: The project has a file of a name that is made here.
        OSError: A file can't be written.
    """
    names = project.files()
    taken = sorted(set(names) & set(_RESERVED))
    if taken:
        raise ConfigError("is made by build, and can't come from the project", path=taken[0])
    for name in names:
        if name != DESCRIPTION_FILE:
            _copy(project.folder, name, content)
    data = read_file(project.folder, DESCRIPTION_FILE, MAX_BYTES)
    digest = digest_of_pipeline(project.description)
    if project.description.pipeline_digest != digest:
        data = sections.replace(data, "pipeline_digest", digest)
    staging.put(content, DESCRIPTION_FILE, data)
    if drift:
        staging.put(content, REPORTS[0], drift.serialise())
        staging.put(content, REPORTS[1], draw(drift))
        names = [*names, *REPORTS]
    parts = [sbom.part(content, name) for name in names]
    document = sbom.document(project.description, parts, created)
    staging.put(content, sbom.SBOM_FILE, document)
    return tuple(sorted([*names, sbom.SBOM_FILE]))


def _copy(root: Path, name: str, content: Path) -> None:
    """Copies a file of a project piece by piece; a link is refused."""
    staging.make_folders(content, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(root / name, flags)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(root / name)) from error
    with open(descriptor, "rb") as source, open(content / name, "xb") as target:
        while piece := source.read(_BLOCK):
            target.write(piece)
        target.flush()
        os.fchmod(target.fileno(), _FILE_MODE)
        os.fsync(target.fileno())
