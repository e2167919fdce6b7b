"""The software bill of materials of a bundle: an SPDX 2.3 document in JSON.

Source: SPDX specification 2.3, https://spdx.github.io/spdx-spec/v2.3/.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha1, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from edge_agent import __version__
from edge_agent.authoring.naming import slug
from edge_agent.authoring.spdx_license import is_expression, references

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edge_agent.description import ModelDescription

SBOM_FILE: Final = "sbom.spdx.json"
_NOTHING: Final = "NOASSERTION"
_DOCUMENT, _PACKAGE = "SPDXRef-DOCUMENT", "SPDXRef-Package"
_TEXT: Final = (".json", ".yaml", ".txt", ".md", ".svg")
_IMAGES: Final = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".avif",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".svg",
)
_SIGNED_LATER: Final = (
    "Signatures are added later, in ./signatures: they are over this document too, so neither the "
    "files nor the verification code can have them."
)
_BLOCK: Final = 1 << 20


class Part(NamedTuple):
    """One file of a bundle.

    Attributes:
        name: Its path in the bundle.
        sha1: Hexadecimal; SPDX 2.3 requires it, nothing here relies on it.
        sha256: Hexadecimal.
    """

    name: str
    sha1: str
    sha256: str


def part(root: Path, name: str) -> Part:
    """Hashes a file of a bundle.

    Raises:
        OSError: It can't be read.
    """
    weak, strong = sha1(usedforsecurity=False), sha256()
    with open(root / name, "rb") as stream:
        while piece := stream.read(_BLOCK):
            weak.update(piece)
            strong.update(piece)
    return Part(name, weak.hexdigest(), strong.hexdigest())


def document(description: ModelDescription, parts: Sequence[Part], created: int) -> bytes:
    """Returns the document: the same files and the same time give the same bytes.

    Args:
        description: The bundle's model.yaml.
        parts: Its files, without the document itself and without signatures.
        created: Seconds since 1970.
    """
    parts = sorted(parts)
    declared = _license(description.license)
    value = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": f"{description.name}-{description.version}",
        "creationInfo": {
            "created": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: edge-agent-{__version__}"],
        },
        "packages": [_package(description, parts, declared)],
        "files": [_file(one) for one in parts],
        "relationships": [
            _relation(_DOCUMENT, "DESCRIBES", _PACKAGE),
            *(_relation(_PACKAGE, "CONTAINS", _id(one)) for one in parts),
        ],
    }
    strangers = references(declared)
    if strangers:
        said = "The bundle's model.yaml names this license; its text isn't part of this document."
        value["hasExtractedLicensingInfos"] = [
            {"licenseId": one, "extractedText": said} for one in strangers
        ]
    value["documentNamespace"] = _namespace(description.name, value)
    return json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n"


def _package(description: ModelDescription, parts: Sequence[Part], declared: str) -> dict[str, Any]:
    return {
        "SPDXID": _PACKAGE,
        "name": description.name,
        "versionInfo": description.version,
        **({"summary": description.summary} if description.summary else {}),
        "downloadLocation": _NOTHING,
        "filesAnalyzed": True,
        "packageVerificationCode": {
            "packageVerificationCodeValue": verification_code(parts),
            "packageVerificationCodeExcludedFiles": [f"./{SBOM_FILE}"],
        },
        "licenseConcluded": _NOTHING,
        "licenseDeclared": declared,
        "licenseInfoFromFiles": [_NOTHING],
        "copyrightText": _NOTHING,
        "comment": _SIGNED_LATER,
    }


def verification_code(parts: Sequence[Part]) -> str:
    """Source: SPDX 2.3, 7.9: SHA-1 of the files' sorted SHA-1 values, one after the other."""
    joined = "".join(sorted(one.sha1 for one in parts))
    return sha1(joined.encode(), usedforsecurity=False).hexdigest()


def _file(one: Part) -> dict[str, Any]:
    return {
        "SPDXID": _id(one),
        "fileName": f"./{one.name}",
        "fileTypes": _types(one.name),
        "checksums": [
            {"algorithm": "SHA1", "checksumValue": one.sha1},
            {"algorithm": "SHA256", "checksumValue": one.sha256},
        ],
        "licenseConcluded": _NOTHING,
        "licenseInfoInFiles": [_NOTHING],
        "copyrightText": _NOTHING,
    }


def _types(name: str) -> list[str]:
    lower = name.lower()
    kinds = (["TEXT"] if lower.endswith(_TEXT) else []) + (
        ["IMAGE"] if lower.endswith(_IMAGES) else []
    )
    return kinds or ["BINARY"]


def _id(one: Part) -> str:
    """Names a file by its path, which no other file has; SPDX takes letters, digits, . and -."""
    return f"SPDXRef-File-{sha256(one.name.encode()).hexdigest()[:32]}"


def _relation(source: str, kind: str, target: str) -> dict[str, str]:
    return {
        "spdxElementId": source,
        "relationshipType": kind,
        "relatedSpdxElement": target,
    }


def _license(text: str | None) -> str:
    return text if text and is_expression(text) else _NOTHING


def _namespace(name: str, rest: dict[str, Any]) -> str:
    """Returns a URI that only this document has: made of everything else in it.

    Source: SPDX 2.3, 6.5, for creators without a web site; RFC 9562, 5.8, UUID version 8.
    """
    content = bytearray(sha256(json.dumps(rest, sort_keys=True).encode()).digest()[:16])
    content[6] = content[6] & 0x0F | 0x80  # the version
    content[8] = content[8] & 0x3F | 0x80  # the variant
    return f"https://spdx.org/spdxdocs/{slug(name)}-{UUID(bytes=bytes(content))}"
