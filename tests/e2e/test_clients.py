"""Other people's clients, each in its own environment, against the server on TCP."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = ROOT / ".venv-clients" / "bin"
HERE: Final = Path(__file__).parent
TOKEN: Final = "0123456789abcdef0123456789abcdef"

pytestmark = pytest.mark.skipif(
    not (CLIENTS / "python").exists(), reason="scripts/setup dev makes .venv-clients"
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Host and port of a server of fake models."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"tests {TOKEN}\n")
    tokens.chmod(0o600)
    program = ROOT / "tests" / "agent" / "server" / "serving.py"
    serving = subprocess.Popen(
        [sys.executable, program, "tcp", tokens], stdout=subprocess.PIPE, text=True
    )
    assert serving.stdout is not None
    try:
        yield f"127.0.0.1:{serving.stdout.readline().strip()}"
    finally:
        serving.terminate()
        assert serving.wait(10) == 0
        serving.stdout.close()


@pytest.mark.parametrize("client", ["triton", "kserve_client", "open_inference_client"])
def test_a_client_gets_along(client: str, address: str) -> None:
    done = subprocess.run(
        [CLIENTS / "python", HERE / "clients" / f"{client}.py", address, TOKEN],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr


def test_the_openapi_document_is_true(address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            CLIENTS / "schemathesis",
            "--config-file",
            HERE / "schemathesis.toml",
            "run",
            f"http://{address}/openapi.json",
            f"--header=Authorization: Bearer {TOKEN}",
            "--checks=all",
            "--phases=coverage,fuzzing",
            "--max-examples=5",
            "--seed=1",
            "--generation-database=none",
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout
