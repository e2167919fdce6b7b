"""What a bill of materials says of the files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from edge_agent.authoring.building.sbom import SBOM_FILE
from edge_agent.errors import BadInputError

if TYPE_CHECKING:
    from edge_signing.sources import BundleSource

MAX_BYTES: Final = 64 * 1024 * 1024


class _Checksum(Struct):
    algorithm: str
    value: str = msgspec.field(name="checksumValue")


class _File(Struct):
    name: str = msgspec.field(name="fileName")
    checksums: tuple[_Checksum, ...]


class _Document(Struct):
    files: tuple[_File, ...]


def digests(document: bytes) -> dict[str, str]:
    """Returns the SHA-256 of each file by its path in the bundle, in hexadecimal.

    Source: SPDX 2.3, clause 8.

    Raises:
        BadInputError: It is no bill of materials of files.
    """
    try:
        read = msgspec.json.decode(document, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"is no SPDX document: {error}", path=SBOM_FILE) from error
    return {
        one.name.removeprefix("./"): each.value
        for one in read.files
        for each in one.checksums
        if each.algorithm == "SHA256"
    }


def require_current(source: BundleSource, name: str) -> None:
    """Refuses a bundle whose bill of materials is of other files; one without any will do.

    Args:
        source: The bundle.
        name: Its name.

    Raises:
        BadInputError: The two differ.
        edge_signing.errors.SigningError: The bundle can't be read, or couldn't be verified.
    """
    from edge_signing.manifest import parse_statement
    from edge_signing.signing import state

    if SBOM_FILE not in source.names():
        return
    with source.open(SBOM_FILE) as stream:
        listed = digests(stream.read(MAX_BYTES))
    present = parse_statement(state(source, name)).digests
    differ = sorted(
        file for file in {*present, *listed} - {SBOM_FILE} if present.get(file) != listed.get(file)
    )
    if differ:
        raise BadInputError(
            f"the bill of materials is of other files: {differ[0]!r} differs",
            path=source.location,
            hint=f"build the bundle again, or remove {SBOM_FILE} and reports/ from it",
        )
