"""`bundle build`: from a project to a bundle's folder and its one `.tar`, reproducibly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_agent import samples
from edge_agent.authoring import staging
from edge_agent.authoring.building import earlier, scaled_decoding
from edge_agent.authoring.building.content import complete, copy
from edge_agent.authoring.gate import verification
from edge_agent.authoring.lint.run import lint
from edge_agent.authoring.project import Project
from edge_agent.errors import AgentError, BadInputError, ConfigError, ThresholdError
from edge_signing.errors import BundleInvalid, BundleUnreadable, SigningError

if TYPE_CHECKING:
    from edge_agent.app import Agent
    from edge_agent.authoring.lint.findings import Finding
    from edge_agent.authoring.lint.run import Report
    from edge_agent.bundles import Progress
    from edge_agent.drift.report import DriftReport
    from edge_signing.ed25519 import PrivateKey


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
        force: Replace an earlier bundle that nobody changed since, and build one that drifts.
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
        drift: Whether its answers keep the contract, None where they were not compared with FP32.
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


def build(agent: Agent, request: BuildRequest, progress: Progress | None = None) -> Built:
    """Builds a bundle.

    Args:
        agent: The agent.
        request: What is to be built.
        progress: Called with runs of the drift gate done and runs in all.

    Raises:
        BadInputError: Lint finds errors, or the place has something that isn't replaced.
        ConfigError: The place has no name of its own, lies in the project or around it, or the
            project has a file of a name that is made here.
        ThresholdError: The answers drift, and `force` is False.
        OSError: It can't be written; no half bundle is left under its name.
    """
    out = request.out or Path(f"{request.project.resolve().name}.bundle")
    if out.name in ("", ".."):
        raise ConfigError(f"--out can't be {str(out)!r}", hint="name the folder that it shall make")
    archive = out.with_name(f"{out.name}.tar")
    _check_place(request, out, archive)
    with staging.staged(out) as work, _told_of(request.project, work / "bundle"):
        content = work / "bundle"
        content.mkdir()
        project, report = _judged(agent, request.project, content)
        _check_decoding(request, project)
        drift = _gate(agent, request, project, progress)
        files = complete(content, project.description, drift, request.created)
        digest, keyid = _seal(content, project.description.name, request.key)
        _pack(content, work / "bundle.tar")
        _place(request, work, out, archive)
    ref = project.ref
    warnings = tuple(one for one in report.findings if one.level == "warning")
    kept = drift.ok if drift else None
    return Built(out, archive, ref.name, ref.version, digest, keyid, files, warnings, kept)


def _check_place(request: BuildRequest, out: Path, archive: Path) -> None:
    place, project = out.resolve(), request.project.resolve()
    if place.is_relative_to(project) or project.is_relative_to(place):
        raise ConfigError(
            "neither the bundle nor its project can lie in the other",
            path=str(out),
            hint="choose another place with --out",
        )
    if not request.force:
        for one in (out, archive):
            staging.require_free(one, "replace it with --force, or choose another with --out")
    if os.path.lexists(out):
        earlier.require_bundle(out)
    if os.path.lexists(archive):
        earlier.require_archive(archive)


def _judged(agent: Agent, home: Path, content: Path) -> tuple[Project, Report]:
    """Copies the project's files and checks the copy; of what can't be copied, lint says why."""
    try:
        project = copy(home, content)
    except (AgentError, SigningError):
        _require_sound(lint(agent, home), home)
        raise
    report = lint(agent, content, home)
    _require_sound(report, home)
    for note in report.notes:
        agent.notify(note)
    return project, report


def _place(request: BuildRequest, work: Path, out: Path, archive: Path) -> None:
    """Gives folder and archive their names; the places may have changed since they were checked."""
    _check_place(request, out, archive)
    staging.place_folder(work / "bundle", out, replace=request.force)
    try:
        staging.place_file(work / "bundle.tar", archive, replace=request.force)
    except BadInputError:
        out.rename(work / "bundle")  # neither without the other
        raise


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


def _check_decoding(request: BuildRequest, project: Project) -> None:
    place = project.inputs(request.inputs) if request.verify else None
    is_there = place is None or place.exists()  # else `_gate` says that it isn't
    if is_there and not request.force:
        scaled_decoding.require_measured(project, place, project.reference(request.reference))


def _gate(
    agent: Agent, request: BuildRequest, project: Project, progress: Progress | None
) -> DriftReport | None:
    """Compares answers with the reference's, where that is wanted and can be done."""
    place, reference = project.inputs(request.inputs), project.reference(request.reference)
    if not request.verify:
        agent.notify("answers are not compared: --no-verify")
        return None
    if place is None:
        agent.notify("answers are not compared: there are no sample inputs; give --inputs DIR")
        return None
    for one, option in ((place, "--inputs DIR"), (reference, "--reference FILE")):
        if one is not None and not one.exists():
            raise BadInputError("isn't here", path=str(one), hint=f"give {option}, or --no-verify")
    if reference is None:
        agent.notify("answers are compared among engines only: give --reference FILE for more")
    files = samples.files(project, place, samples.USUAL_COUNT)
    if progress:
        progress(0, len(files))
    report = verification.verify(
        agent,
        project,
        files,
        verification.read_reference(reference) if reference else None,
        progress=progress,
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
    from edge_signing.oci_writing import write_oci_tar
    from edge_signing.sources import DirectorySource

    with DirectorySource(content) as source:
        write_oci_tar(source, archive)


@contextmanager
def _told_of(home: Path, content: Path) -> Iterator[None]:
    """Makes what is wrong with the copy a fault of the project, which its author knows."""
    try:
        yield
    except (BundleInvalid, BundleUnreadable) as error:
        path = _at_home(error.path, home, content) or str(home)
        raise BadInputError(error.message, path=path, hint=error.hint) from error
    except AgentError as error:
        error.path = _at_home(error.path, home, content)
        raise


def _at_home(path: str | None, home: Path, content: Path) -> str | None:
    return path and path.replace(str(content), str(home))
