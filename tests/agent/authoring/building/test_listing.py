"""Whether a bill of materials is of the files beside it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from edge_agent.authoring.building.listing import digests, require_current
from edge_agent.errors import BadInputError
from edge_signing.sources import MemorySource

FILES = {"model.yaml": b"name: x\n", "weights/a.bin": b"abc"}


def document(files: dict[str, bytes]) -> dict[str, Any]:
    return {
        "files": [
            {
                "fileName": f"./{name}",
                "checksums": [
                    {"algorithm": "SHA1", "checksumValue": "0"},
                    {"algorithm": "SHA256", "checksumValue": sha256(data).hexdigest()},
                ],
            }
            for name, data in files.items()
        ]
    }


def source(files: dict[str, bytes], listed: dict[str, bytes]) -> MemorySource:
    return MemorySource(files | {"sbom.spdx.json": json.dumps(document(listed)).encode()})


def test_the_files_that_it_was_made_of() -> None:
    require_current(source(FILES, FILES), "acme/x")
    require_current(MemorySource(FILES), "acme/x")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.yaml": b"name: y\n"}, "model.yaml"),
        ({"more": b""}, "more"),
        ({"weights/a.bin": None}, "weights/a.bin"),
    ],
)
def test_other_files(change: dict[str, bytes | None], said: str) -> None:
    changed = {name: data for name, data in (FILES | change).items() if data is not None}
    with pytest.raises(BadInputError, match=said) as caught:
        require_current(source(changed, FILES), "acme/x")
    assert "build the bundle again" in (caught.value.hint or "")


@pytest.mark.parametrize("data", [b"", b"{}", b'{"files": [{}]}', b"\xff", b"[" * 100_000])
def test_what_is_none(data: bytes) -> None:
    with pytest.raises(BadInputError, match="is no SPDX document"):
        digests(data)
