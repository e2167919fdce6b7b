"""`bundle build`: from a project to a bundle's folder and its one `.tar`, reproducibly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent import samples
from edge_agent.authoring import staging
from edge_agent.authoring.building.content import fill
from edge_agent.authoring.gate import verification
from edge_agent.authoring.lint.run import lint
from edge_agent.authoring.project import Project
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.errors import BadInputError, ConfigError, ThresholdError

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.authoring.lint.findings import Finding
    from edge_agent.authoring.lint.run import Report
    from edge_agent.drift.report import DriftReport
    from edge_signing.ed25519 import PrivateKey

MAX_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What is to be built.

    Attributes:
        project: The project's folder.
        out: The bundle's folder; the archive has its name and `.tar`. None takes the project's
            name and `.bundle`, here.
        inputs: Folder of sample inputs; None takes build.toml's.
        reference: The FP32 model; None takes build.toml's.
        verify: Whether answers are compared with the reference's.
        force: Replace an earlier bundle, and build one that drifts.
        key: The key that signs; None leaves it unsigned.
        created: The time in the bill of materials, seconds since 1970.
    """

    project: Path
    out: Path | None = None
    inputs: Path | None = None
    reference: Path | None = None
    verify: bool = True
    force: bool = False
    key: PrivateKey | None = None
    created: int = 0


@dataclass(frozen=True, slots=True)
class Built:
    """What was built.

    Attributes:
        path: The bundle's folder.
        archive: The same bundle as one file.
        name: Its name.
        version: Its version.
        digest: `sha256:…`: that of the statement which signatures are over.
        keyid: Who signed it, None where nobody did.
        files: What is in it.
        warnings: What had better not be so.
        drift: Whether its answers keep the contract, None where they were not compared.
    """

    path: Path
    archive: Path
    name: str
    version: str
    digest: str
    keyid: str | None
    files: tuple[str, ...]
    warnings: tuple[Finding, ...]
    drift: bool | None


def build(agent: Agent, request: BuildRequest) -> Built:
    """Builds a bundle.

    Raises:
        BadInputError: Lint finds errors, or the place has something already.
        ConfigError: The place has no name of its own or lies in the project, or the project has a
            file of a name that is made here.
        ThresholdError: The answers drift, and `force` is False.
        OSError: It can't be written; no half bundle is left under its name.
    """
    out = request.out or Path(f"{request.project.resolve().name}.bundle")
    if out.name in ("", ".."):
        raise ConfigError(f"--out can't be {str(out)!r}", hint="name the folder that it shall make")
    archive = out.with_name(f"{out.name}.tar")
    _check_place(request, out, archive)
    report = lint(agent, request.project)
    _require_sound(report, request.project)
    project = Project(request.project)
    for note in report.notes:
        agent.notify(note)
    drift = _gate(agent, request, project)
    with _told_of(out), staging.staged(out) as work:
        content = work / "bundle"
        content.mkdir()
        files = fill(content, project, drift, request.created)
        digest, keyid = _seal(content, project.description.name, request.key)
        _pack(content, work / "bundle.tar")
        staging.place_file(work / "bundle.tar", archive)
        staging.place_folder(content, out)
    ref = project.ref
    warnings = tuple(one for one in report.findings if one.level == "warning")
    kept = drift.ok if drift else None
    return Built(out, archive, ref.name, ref.version, digest, keyid, files, warnings, kept)


def _check_place(request: BuildRequest, out: Path, archive: Path) -> None:
    if out.absolute().resolve().is_relative_to(request.project.resolve()):
        raise ConfigError(
            "the bundle can't lie in its project", path=str(out), hint="choose another with --out"
        )
    if not request.force:
        for place in (out, archive):
            staging.require_free(place, "replace it with --force, or choose another with --out")
    for place, is_right in ((out, Path.is_dir), (archive, Path.is_file)):
        if os.path.lexists(place) and (place.is_symlink() or not is_right(place)):
            raise BadInputError("is something else than a bundle", path=str(place))
    if out.is_dir() and any(out.iterdir()) and not (out / DESCRIPTION_FILE).exists():
        raise BadInputError("holds something else than a bundle", path=str(out))


def _require_sound(report: Report, folder: Path) -> None:
    errors = report.errors
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        all_of_them = f"edge-agent bundle lint {folder} shows them all" if more else None
        raise BadInputError(
            f"{first.code}: {first.message}{more}",
            path=str(folder / first.place),
            hint=all_of_them or first.hint,
        )


def _gate(agent: Agent, request: BuildRequest, project: Project) -> DriftReport | None:
    """Compares answers with the reference's, where that is wanted and can be done."""
    place, reference = project.inputs(request.inputs), project.reference(request.reference)
    if not request.verify:
        agent.notify("answers are not compared: --no-verify")
        return None
    if place is None:
        agent.notify("answers are not compared: there are no sample inputs; give --inputs DIR")
        return None
    if reference is None:
        agent.notify("answers are compared among engines only: give --reference FILE for more")
    report = verification.verify(
        agent,
        project,
        samples.files(project, place, MAX_SAMPLES),
        verification.read_reference(reference) if reference else None,
    )
    try:
        verification.require(report)
    except ThresholdError as error:
        if not request.force:
            raise ThresholdError(
                error.message, hint="--force builds it all the same, with the report inside"
            ) from error
        agent.notify(f"{error.message}: built all the same, as --force says")
    return report


def _seal(content: Path, name: str, key: PrivateKey | None) -> tuple[str, str | None]:
    """Signs the bundle, or says which digest the signatures will be over."""
    from edge_signing.bundle import sign_directory
    from edge_signing.manifest import bundle_digest
    from edge_signing.signing import state
    from edge_signing.sources import DirectorySource

    if key:
        signed = sign_directory(content, name, key)
        return signed.digest, signed.keyid
    with DirectorySource(content) as source:
        return bundle_digest(state(source, name)), None


def _pack(content: Path, archive: Path) -> None:
    from edge_signing.oci import write_oci_tar
    from edge_signing.sources import DirectorySource

    with DirectorySource(content) as source:
        write_oci_tar(source, archive)


@contextmanager
def _told_of(out: Path) -> Iterator[None]:
    """Makes what signing finds wrong with a new bundle a fault of its author's input."""
    from edge_signing.errors import BundleInvalid, BundleUnreadable

    try:
        yield
    except (BundleInvalid, BundleUnreadable) as error:
        raise BadInputError(error.message, path=error.path or str(out), hint=error.hint) from error
