"""Whether what lies at a place is an earlier bundle, which may be replaced: nothing else may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.authoring.building import listing, sbom
from edge_agent.authoring.project import SIGNATURES
from edge_agent.authoring.recipe import RECIPE_FILE
from edge_agent.bundles import DESCRIPTION_FILE
from edge_agent.errors import BadInputError
from edge_agent.files import read_regular
from edge_signing.errors import SigningError
from edge_signing.oci import OciTarSource

if TYPE_CHECKING:
    from pathlib import Path

_HINT: Final = "choose another place with --out, or move away what is there"


def require_bundle(folder: Path) -> None:
    """Refuses to replace a folder that isn't what `bundle build` made, byte for byte.

    Args:
        folder: A folder; an empty one will do.

    Raises:
        BadInputError: It holds something else: a project, a bundle that was changed since.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise BadInputError("is something else than a bundle", path=str(folder), hint=_HINT)
    present = {one for one in folder.rglob("*") if one.is_symlink() or not one.is_dir()}
    if not present and not any(folder.iterdir()):
        return
    if folder / RECIPE_FILE in present:
        raise _strange(folder, "is a project")
    listed = _listed(folder)
    for path in sorted(present):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file():
            raise _strange(path, "isn't what `bundle build` made there")
        if name == sbom.SBOM_FILE or path.match(f"{SIGNATURES}/*.sigstore.json"):
            continue
        if name not in listed:
            raise _strange(path, "isn't what `bundle build` made there")
        if sbom.part(folder, name).sha256 != listed[name]:
            raise _strange(path, "was changed since `bundle build` made it")


def require_archive(path: Path) -> None:
    """Refuses to replace a file that isn't the archive of a bundle that `bundle build` made.

    Raises:
        BadInputError: It is something else.
    """
    if path.is_symlink() or not path.is_file():
        raise BadInputError("is something else than a bundle", path=str(path), hint=_HINT)
    try:
        with OciTarSource(path) as source:
            names = source.names()
    except SigningError as error:
        raise _strange(path, "is no bundle's archive") from error
    if not {DESCRIPTION_FILE, sbom.SBOM_FILE} <= set(names):
        raise _strange(path, "isn't an archive that `bundle build` made")


def _listed(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 that a bundle's bill of materials gives each of its files."""
    place = folder / sbom.SBOM_FILE
    try:
        return listing.digests(read_regular(place, listing.MAX_BYTES, follow_links=False))
    except (OSError, BadInputError) as error:
        raise _strange(folder, "isn't what `bundle build` made") from error


def _strange(path: Path, said: str) -> BadInputError:
    return BadInputError(f"{said}, so it isn't replaced", path=str(path), hint=_HINT)
