"""Other people's clients, each in its own environment, against the server on TCP.

Fake models have what the protocols have; `edge-agent serve` has the rest of the daemon behind it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .conftest import NAME, Publisher, Run, colour_model
from .daemons import Daemon
from .models import publish

ROOT: Final = Path(__file__).parents[2]
CLIENTS: Final = ROOT / ".venv-clients" / "bin"
HERE: Final = Path(__file__).parent
TOKEN: Final = "0123456789abcdef0123456789abcdef"

pytestmark = pytest.mark.skipif(
    not (CLIENTS / "python").exists(), reason="scripts/setup dev makes .venv-clients"
)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A file with one token."""
    file = tmp_path / "tokens"
    file.write_text(f"tests {TOKEN}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def address(tokens: Path) -> Iterator[str]:
    """Host and port of a server of fake models."""
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


@pytest.fixture
def daemons_address(run: Run, publisher: Publisher, daemon: Daemon, tokens: Path) -> str:
    """Host and port of a daemon that serves one real model."""
    publish(publisher, NAME, colour_model())
    assert run("models", "install", publisher.bundle).code == 0
    return started(daemon, publisher, tokens)


def started(daemon: Daemon, publisher: Publisher, tokens: Path) -> str:
    """Starts a daemon that listens on TCP; returns where."""
    config = publisher.keyring_file.with_name("config.toml")
    config.write_text(f'[serve.tcp]\nport = 0\ntokens_file = "{tokens}"\n')
    daemon.start().wait_ready()
    addresses = [str(one["address"]) for one in daemon.events("listening")]
    (found,) = [one for one in addresses if not one.startswith("/")]
    return found


def run_client(name: str, address: str) -> None:
    done = subprocess.run(
        [CLIENTS / "python", HERE / "clients" / f"{name}.py", address, TOKEN],
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr


def hold_to_its_document(address: str, folder: Path) -> None:
    """Has schemathesis ask for what the OpenAPI document says."""
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
        cwd=folder,
        timeout=55,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("client", ["triton", "kserve_client", "open_inference_client"])
def test_a_client_gets_along(client: str, address: str) -> None:
    run_client(client, address)


def test_clients_get_along_with_the_daemon(daemons_address: str) -> None:
    run_client("against_the_daemon", daemons_address)


def test_the_example_of_the_page_runs(daemon: Daemon, publisher: Publisher, tokens: Path) -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs" / "HTTP.md").read_text(), re.MULTILINE | re.DOTALL
    )
    address = started(daemon, publisher, tokens)
    for shown, meant in (("localhost:8443", address), ("TOKEN", TOKEN)):
        assert example.count(shown) == 1
        example = example.replace(shown, meant)
    done = subprocess.run(
        [CLIENTS / "python", "-c", example], capture_output=True, text=True, cwd=ROOT, timeout=50
    )
    assert done.returncode == 0, done.stderr
    assert ":missile" in done.stdout
    assert "(1, 1000)" in done.stdout


def test_the_openapi_document_is_true(address: str, tmp_path: Path) -> None:
    hold_to_its_document(address, tmp_path)


def test_the_openapi_document_is_true_of_the_daemon(
    daemons_address: str, daemon: Daemon, tmp_path: Path
) -> None:
    hold_to_its_document(daemons_address, tmp_path)
    assert not daemon.events("request_failed")
