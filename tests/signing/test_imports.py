"""The room stands alone, and is cheap to enter."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import edge_signing

ROOM = Path(str(edge_signing.__file__)).parent
MODULES = sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("module", MODULES)
def test_only_the_standard_library_and_pynacl(module: str) -> None:
    tree = ast.parse((ROOM / f"{module}.py").read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    assert names <= sys.stdlib_module_names | {"nacl", "edge_signing"}


def test_heavy_modules_are_not_imported_at_start() -> None:
    code = (
        "import edge_signing.bundle, edge_signing.oci, edge_signing.keys, sys; print(*sys.modules)"
    )
    output = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOM.parent)!r}); {code}",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    heavy = {
        "nacl",
        "tarfile",
        "tempfile",
        "base64",
        "secrets",
        "shutil",
        "subprocess",
        "edge_agent",
    }
    assert heavy & set(output.split()) == set()


@pytest.mark.parametrize("module", MODULES)
def test_files_stay_small(module: str) -> None:
    assert len((ROOM / f"{module}.py").read_text(encoding="utf-8").splitlines()) < 300
