"""What is left of root in a worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge_agent.workers.child.privileges import give_up_root
from tests.agent import models
from tests.agent.conftest import Python

SCRIPT = """
import ctypes, os, sys
from edge_agent.workers.child import privileges, process_setup
from edge_agent.workers.protocol import ChildSettings

def tell(what, work):
    try:
        work()
        print(what)
    except OSError as error:
        print(what, error.strerror)

process_setup._close_standard_streams = lambda: None
privileges.places = lambda: sys.argv[2:]
libc = ctypes.CDLL(None)
print(process_setup.settle(ChildSettings(1, 1, 1, None, 0, (), os.getppid())))
print({*os.getresuid(), *os.getresgid()}, os.getgroups())
ending = ctypes.c_int()
libc.prctl(2, ctypes.byref(ending))  # PR_GET_PDEATHSIG
print(ending.value)
tell("owner", lambda: os.chown("/", 1, 1))
tell("user", lambda: os.setuid(1))
tell("kill", lambda: os.kill(1, 0))
tell("root", lambda: os.listdir("/proc/1/fd"))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_root_becomes_nobody_and_still_infers(python: Python) -> None:
    script = (
        "import numpy, onnxruntime"
        + SCRIPT
        + """
print(process_setup._data_bytes() > 0)
session = onnxruntime.InferenceSession(bytes.fromhex(sys.argv[1]))
print(session.run(None, {"x": numpy.ones((1, 2), "f4")})[0].tolist())
"""
    )
    assert python.run(script, models.rows().hex(), "/").splitlines() == [
        "user nobody", "{65534} []", "9",
        "owner Operation not permitted", "user Operation not permitted",
        "kill Operation not permitted", "root Permission denied",
        "True", "[[2.0, 2.0]]",
    ]  # fmt: skip


def test_where_nobody_can_read_this_python_root_may_only_read(
    python: Python, tmp_path: Path
) -> None:
    script = (
        SCRIPT
        + """
tell("read", lambda: os.listdir(sys.argv[3]))
"""
    )
    private = tmp_path / "private"
    private.mkdir(mode=0)
    os.chown(private, 1, 1)
    lines = python.run(script, "", "/proc/1/fd", private).splitlines()
    assert lines[0].startswith("user root, who may read only: ")
    assert lines[1:5] == [
        "{0} []", "9",
        "owner Operation not permitted", "user Operation not permitted",
    ]  # fmt: skip
    assert lines[-1] == "read"


def test_anybody_else_has_nothing_to_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert give_up_root() is None
