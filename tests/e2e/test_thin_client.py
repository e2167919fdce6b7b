"""`infer` through the daemon, as a process: what it prints, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.cli.stand_in import DOCUMENT, answer, daemon

from .conftest import Run

# Beside what the interpreter itself imports: C modules, and small ones of our own.
AFFORDABLE = {
    "__future__",
    "_json",
    "_signal",
    "_socket",
    "edge_agent",
    "edge_agent.answers",
    "edge_agent.cli",
    "edge_agent.cli.http_socket",
    "edge_agent.cli.infer_answers",
    "edge_agent.cli.infer_images",
    "edge_agent.cli.infer_options",
    "edge_agent.cli.infer_run",
    "edge_agent.cli.main",
    "edge_agent.cli.output",
    "edge_agent.cli.quick_json",
    "edge_agent.cli.socket_infer",
    "edge_agent.references",
    "edge_agent.socket_places",
    "edge_signing",
    "edge_signing.errors",
    "gc",
    "time",
}
MODULES = """
import os, sys
before = set(sys.modules)
from edge_agent.cli import main
def leave(code):
    sys.stderr.write("\\n".join(sorted(set(sys.modules) - before)))
    sys.stderr.flush()
    _exit(code)
_exit, os._exit = os._exit, leave
main.main()
"""


@pytest.mark.parametrize("arguments", [["a.jpg"], ["a.jpg", "-", "--json"]])
def test_asking_imports_next_to_nothing(arguments: list[str], run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"image")
    ok = answer(DOCUMENT)
    with daemon(ok, ok) as stand_in:
        folder = str(stand_in.folder)
        outcome = run("infer", *arguments, script=MODULES, EDGE_AGENT_RUNTIME_DIR=folder)
    assert outcome.code == 0
    imported = set(outcome.err.splitlines())
    assert "edge_agent.cli.socket_infer" in imported
    assert imported <= AFFORDABLE


def test_prints_what_this_process_would(run: Run, photos: Path) -> None:
    """All but who answered, for an answer that this process gave before."""
    photo = photos / "coffee.png"
    here = run("infer", photo, "--json", "--engine", "onnx").json()
    lines = run("infer", photo, "--engine", "onnx").out.splitlines()
    document = {key: value for key, value in here.items() if key not in ("input", "answered_by")}
    ok = answer(document)
    with daemon(ok, ok) as stand_in:
        folder = {"EDGE_AGENT_RUNTIME_DIR": str(stand_in.folder)}
        asked = run("infer", photo, "--json", **folder)
        printed = run("infer", photo, **folder).out.splitlines()
    assert asked.out == json.dumps({**here, "answered_by": "daemon"}) + "\n"
    assert printed[1:] == lines[1:]
    assert printed[0].endswith(" ms, by the daemon)")


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        (["--no-cache"], "--no-cache"),
        (["--engine", "onnx"], "--engine"),
        (["--input", "x=x.npy"], "--input"),
        ([], ""),
    ],
)
def test_what_keeps_an_alias_from_the_daemon_is_told(
    choice: list[str], told: str, run: Run, photos: Path
) -> None:
    asked = run("infer", photos / "coffee.png", "--model", "objects", "--json", *choice)
    hint = asked.json()["error"]["hint"]
    assert asked.code == 5
    assert (f"an alias is known to the daemon only: leave out {told}" in hint) == bool(told)


def test_full_disk_is_told(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"image")
    with daemon(answer(DOCUMENT)) as stand_in:
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m edge_agent infer a.jpg >/dev/full"],
            env=environment | {"EDGE_AGENT_RUNTIME_DIR": str(stand_in.folder)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    assert (done.returncode, "No space left" in done.stderr) == (1, True)
