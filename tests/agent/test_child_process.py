"""Children that answer, crash, hang, print without end, and lose their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_agent import child_process
from edge_agent.authoring.lint import isolated

ATTACHED = """\
from edge_agent.child_process import attach
request, answer = attach()
import os, sys, time
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the module `child_of_a_test`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "child_of_a_test.py"


@pytest.mark.parametrize(
    ("code", "answer", "problem", "said"),
    [
        ("os.write(answer, request[::-1])", b"cba", None, ""),
        ("print('x'); os.write(answer, b'whole')", b"whole", None, "x"),
        ("os.write(answer, b'half'); os.kill(os.getpid(), 11)", b"half", "SIGSEGV", ""),
        ("os.kill(os.getpid(), 40)", b"", "was ended by the signal 40", ""),
        ("print('no memory', file=sys.stderr); sys.exit(3)", b"", "exit code 3", "no memory"),
        ("time.sleep(60)", b"", "took longer than 1 s, and was stopped", ""),
        ("while True: os.write(1, b'x' * 2**20)", b"", "SIGXFSZ", None),
    ],
)
def test_endings(
    child: Path, code: str, answer: bytes, problem: str | None, said: str | None
) -> None:
    signal = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    child.write_text(ATTACHED + signal + code)
    ended = child_process.run("child_of_a_test", b"abc", 1.0 if "sleep" in code else 20.0)
    assert ended.answer == answer
    assert (problem or "") in (ended.problem or "")
    assert (problem is None) == (ended.problem is None)
    if said is not None:
        assert ended.said == said


def test_a_harder_limit_of_the_parent_stays(child: Path) -> None:
    child.write_text(
        ATTACHED + "from resource import *\nfrom edge_agent.child_process import limit\n"
        "limit(RLIMIT_AS, 2**40); os.write(answer, repr(getrlimit(RLIMIT_AS)).encode())"
    )
    code = (
        "from edge_agent import child_process as c; import resource as r;"
        "r.setrlimit(r.RLIMIT_AS, (2**32, 2**32)); r.setrlimit(r.RLIMIT_FSIZE, (2**20, 2**20));"
        "print(c.run('child_of_a_test', b'', 20).answer.decode())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40)
    assert done.stdout == f"({2**32}, {2**32})\n"


def test_paths_that_are_no_text_are_handed_over() -> None:
    job = isolated.Job("/a\udcff", "m\udcfe.onnx", "onnx")
    assert child_process.unpack(child_process.pack(job), isolated.Job) == job
    for damaged in (b"", b"{", b"{}", b"[]", b"\xff"):
        with pytest.raises(ValueError, match=r"."):
            child_process.unpack(damaged, isolated.Job)


def test_an_answer_is_cut_off_at_its_limit(child: Path) -> None:
    child.write_text(ATTACHED + "os.write(answer, bytes(20 * 2**20))")
    assert len(child_process.run("child_of_a_test", b"", 20.0).answer) == 16 * 2**20


@pytest.mark.parametrize("moment", ["before it attaches", "while it works"])
def test_a_child_ends_with_its_parent(child: Path, tmp_path: Path, moment: str) -> None:
    mark = tmp_path / "mark"
    tell = f"open({str(mark)!r}, 'w').write(str(os.getpid()))\n"
    early = "import os, time\n" + tell + "time.sleep(2)\n" + ATTACHED
    work = "time.sleep(60)"
    child.write_text(early + work if moment.startswith("before") else ATTACHED + tell + work)
    code = "from edge_agent import child_process as c; c.run('child_of_a_test', b'', 60)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    pid = _written(mark)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(pid)


def _written(mark: Path) -> str:
    deadline = time.monotonic() + 20
    while not (mark.exists() and mark.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return mark.read_text()


def _is_running(pid: str) -> bool:
    """Whether it runs; whoever adopts orphans here may be slow to bury them."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_what_can_not_be_started_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", os.devnull)
    with pytest.raises(OSError, match="Permission denied"):
        child_process.run("edge_agent.bench.child", b"", 1.0)
