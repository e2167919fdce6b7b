"""The bill of materials, held to SPDX 2.3 by hand; scripts/spdx-conformance asks its library."""

from __future__ import annotations

import json
import re
from hashlib import sha1
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from edge_agent import model_yaml
from edge_agent.authoring.building import sbom
from edge_agent.authoring.spdx_license import is_expression, references
from tests.agent import models

ID = re.compile(r"SPDXRef-[A-Za-z0-9.-]+")


def document(root: Path, created: int = 0, **changes: Any) -> dict[str, Any]:
    described = model_yaml.parse(models.text(models.COLOUR | changes))
    files = models.bundle_files(models.COLOUR)
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    parts = [sbom.part(root, name) for name in files]
    data = sbom.document(described, parts, created)
    assert data == sbom.document(described, parts[::-1], created)
    value: dict[str, Any] = json.loads(data)
    return value


def test_required_members(tmp_path: Path) -> None:
    value = document(tmp_path)
    assert (value["spdxVersion"], value["dataLicense"]) == ("SPDX-2.3", "CC0-1.0")
    assert value["SPDXID"] == "SPDXRef-DOCUMENT"
    assert re.fullmatch(r"https://[^#\s]+", value["documentNamespace"])
    assert value["creationInfo"]["created"] == "1970-01-01T00:00:00Z"
    assert re.fullmatch(r"Tool: edge-agent-[0-9.]+", value["creationInfo"]["creators"][0])
    (package,) = value["packages"]
    assert (package["name"], package["versionInfo"]) == ("acme/colour", "1.0.0")
    assert package["filesAnalyzed"] is True
    ids = [value["SPDXID"], package["SPDXID"], *(one["SPDXID"] for one in value["files"])]
    assert all(ID.fullmatch(one) for one in ids)
    assert len(set(ids)) == len(ids)


def test_files_and_verification_code(tmp_path: Path) -> None:
    value = document(tmp_path)
    sums = []
    for one in value["files"]:
        assert one["fileName"].startswith("./")
        data = (tmp_path / one["fileName"]).read_bytes()
        checksums = {each["algorithm"]: each["checksumValue"] for each in one["checksums"]}
        assert set(checksums) == {"SHA1", "SHA256"}
        assert checksums["SHA1"] == sha1(data).hexdigest()
        assert len(checksums["SHA256"]) == 64
        sums.append(checksums["SHA1"])
        assert set(one["fileTypes"]) <= {"TEXT", "IMAGE", "BINARY"}
    code = value["packages"][0]["packageVerificationCode"]
    assert code["packageVerificationCodeValue"] == sha1("".join(sorted(sums)).encode()).hexdigest()
    assert code["packageVerificationCodeExcludedFiles"] == ["./sbom.spdx.json"]


def test_relationships(tmp_path: Path) -> None:
    value = document(tmp_path)
    found = [
        (one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"])
        for one in value["relationships"]
    ]
    package = value["packages"][0]["SPDXID"]
    assert found[0] == ("SPDXRef-DOCUMENT", "DESCRIBES", package)
    contained = [(package, "CONTAINS", one["SPDXID"]) for one in value["files"]]
    assert sorted(found[1:]) == sorted(contained)


def test_namespace_is_of_everything_else(tmp_path: Path) -> None:
    one, again = document(tmp_path / "a"), document(tmp_path / "b")
    assert one == again
    unique = UUID(one["documentNamespace"][-36:])
    assert (unique.version, unique.variant) == (8, RFC_4122)
    dated = document(tmp_path / "c", created=1_700_000_000)
    assert dated["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    changes: list[dict[str, Any]] = [{"version": "1.0.1"}, {"license": "MIT"}, {"summary": "x"}]
    others = [document(tmp_path / str(index), **one) for index, one in enumerate(changes)]
    assert len({each["documentNamespace"] for each in (one, dated, *others)}) == 5


@pytest.mark.parametrize(
    ("given", "declared"),
    [
        ("Apache-2.0", "Apache-2.0"), (None, "NOASSERTION"), ("what you like", "NOASSERTION"),
        ("LicenseRef-Acme OR MIT", "LicenseRef-Acme OR MIT"),
        ("LicenseRef-a AND (LicenseRef-b OR MIT)", "LicenseRef-a AND (LicenseRef-b OR MIT)"),
        ("DocumentRef-x:LicenseRef-y", "NOASSERTION"),
    ],
)  # fmt: skip
def test_license(given: str | None, declared: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"license": given} if given else {}
    value = document(tmp_path, **changes)
    assert value["packages"][0]["licenseDeclared"] == declared
    assert value["packages"][0]["licenseConcluded"] == "NOASSERTION"
    extracted = [one["licenseId"] for one in value.get("hasExtractedLicensingInfos", [])]
    assert extracted == references(declared)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("MIT", True), ("GPL-2.0+", True), ("(MIT OR Apache-2.0) AND BSD-3-Clause", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", True), ("DocumentRef-a:LicenseRef-b", False),
        ("", False), ("MIT OR", False), ("MIT Apache-2.0", False), ("(MIT", False), (")", False),
        ("MIT AND OR MIT", False), ("MIT; drop", False), ("WITH", False), ("(" * 99 + "MIT", False),
        ("MIT WITH", False), ("Apache 2.0", False),
    ],
)  # fmt: skip
def test_license_expressions(text: str, is_one: bool) -> None:
    assert is_expression(text) is is_one
