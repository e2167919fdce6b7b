"""A large bundle is verified in constant memory, with a progress bar on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import MODEL_YAML, Publisher, Run

SIZE = 1 << 30
PEAK = """
import sys
from edge_agent.cli.main import run
code = run(sys.argv[1:])
with open("/proc/self/status") as stream:  # ru_maxrss would include the test's own process
    print("PEAK", *[line.split()[1] for line in stream if "VmHWM" in line], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def large(publisher: Publisher) -> Path:
    """A bundle with a sparse file of 1 GiB, and without a golden input."""
    publisher.put("model.yaml", MODEL_YAML.partition("golden:")[0].encode())
    with open(publisher.bundle / "weights/more.bin", "wb") as stream:
        stream.truncate(SIZE)
    (signature,) = (publisher.bundle / "signatures").iterdir()
    signature.unlink()
    publisher.sign()
    return publisher.bundle


@pytest.mark.timeout(180)
def test_memory_stays_constant(large: Path, run: Run) -> None:
    outcome = run("bundle", "verify", large, script=PEAK)
    assert outcome.code == 0
    assert int(outcome.err.rpartition("PEAK")[2]) < 150 * 1024


@pytest.mark.timeout(180)
def test_progress_bar_on_a_terminal(large: Path, environment: dict[str, str]) -> None:
    try:
        ours, theirs = pty.openpty()
    except OSError:
        pytest.skip("this container has no /dev/pts")
    with subprocess.Popen(
        [sys.executable, "-m", "edge_agent", "bundle", "verify", str(large)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment | {"TERM": "xterm"},
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:
            pass  # the other side is closed: Linux says EIO
        os.close(ours)
        assert process.wait() == 0
    assert b"verifying" in shown
    assert b"GiB" in shown
