"""The files of a new bundle: those of its project, its bill of materials, the drift report."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from edge_agent.authoring import sections, staging
from edge_agent.authoring.building import sbom
from edge_agent.authoring.project import Project, read_file
from edge_agent.authoring.source_files import require_no_links
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.description import digest_of_pipeline
from edge_agent.drift.picture import draw
from edge_agent.errors import BadInputError, ConfigError, DescriptionError
from edge_agent.yaml_subset import MAX_BYTES
from edge_signing.limits import DEFAULT_LIMITS
from edge_signing.names import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_agent.description import ModelDescription
    from edge_agent.drift.report import DriftReport

REPORTS: Final = ("reports/drift.json", "reports/drift.svg")
_RESERVED: Final = (sbom.SBOM_FILE, *REPORTS)
_BLOCK: Final = 1 << 20
_FILE_MODE: Final = 0o644


def copy(home: Path, content: Path) -> Project:
    """Copies what goes into the bundle from its project, and fills in `pipeline_digest`.

    What is judged and measured afterwards is the copy: whatever happens to the project meanwhile,
    nothing else gets into the bundle.

    Args:
        home: The project.
        content: An empty folder.

    Returns:
        The copy, as a project.

    Raises:
        BadInputError: A file of the project can't be read, or is larger than a bundle may be.
        DescriptionError: The model.yaml breaks a rule, or isn't written in a style that the digest
            can be put into.
        ConfigError: A file has a name that is made here, or build.toml can't be used.
        edge_signing.errors.SigningError: A name, or a model's external data, can't be in a bundle.
        OSError: A file can't be written.
    """
    names = Project(home).files()
    taken = sorted(set(names) & set(_RESERVED))
    if taken:
        raise ConfigError("is made by build, and can't come from the project", path=taken[0])
    for name in names:
        check_name(name)
        _copy(home, name, content)
    project = Project(content, home)
    digest = digest_of_pipeline(project.description)
    if project.description.pipeline_digest != digest:
        data = read_file(content, DESCRIPTION_FILE, MAX_BYTES)
        try:
            data = sections.replace(data, "pipeline_digest", digest)
        except DescriptionError as error:
            error.path = str(home / DESCRIPTION_FILE)
            raise
        staging.put(content, DESCRIPTION_FILE, data)
    return Project(content, home)


def complete(
    content: Path, description: ModelDescription, drift: DriftReport | None, created: int
) -> tuple[str, ...]:
    """Adds what `bundle build` makes: the drift report and the bill of materials.

    Args:
        content: The copy of the project's files.
        description: Its model.yaml.
        drift: The report of the drift gate, None where it didn't run.
        created: The time in the bill of materials, seconds since 1970.

    Returns:
        The paths of all files, sorted.

    Raises:
        OSError: A file can't be written.
    """
    if drift:
        staging.put(content, REPORTS[0], drift.serialise())
        staging.put(content, REPORTS[1], draw(drift))
    names = [one.relative_to(content).as_posix() for one in content.rglob("*") if one.is_file()]
    parts = [sbom.part(content, name) for name in names]
    staging.put(content, sbom.SBOM_FILE, sbom.document(description, parts, created))
    return tuple(sorted([*names, sbom.SBOM_FILE]))


def _copy(root: Path, name: str, content: Path) -> None:
    """Copies a file of a project piece by piece; a link, or what lies behind one, is refused."""
    staging.make_folders(content, name)
    with open(content / name, "xb") as target:
        for piece in _pieces(root, name):
            target.write(piece)
        target.flush()
        os.fchmod(target.fileno(), _FILE_MODE)
        os.fsync(target.fileno())


def _pieces(root: Path, name: str) -> Iterator[bytes]:
    require_no_links(root, name)
    path = root / name
    left = DEFAULT_LIMITS.total_bytes
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInputError("is no regular file", path=str(path))
            while left >= 0 and (piece := source.read(_BLOCK)):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    if left < 0:
        raise BadInputError("is larger than a bundle may be", path=str(path))
