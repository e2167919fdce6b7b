"""How a worker process starts, stands among the others, and ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edge_agent.workers.protocol import MAX_MESSAGE_BYTES, Done, RunBatch
from tests.agent.conftest import Python

from . import child_models
from .child_driver import Child, sealed

ROOT = Path(__file__).parents[3]


def facts(child: Child, file: str = "status") -> dict[str, str]:
    lines = Path(f"/proc/{child.process.pid}/{file}").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def limits(child: Child) -> dict[str, list[str]]:
    lines = Path(f"/proc/{child.process.pid}/limits").read_text().splitlines()
    return {line[:26].strip(): line[26:].split() for line in lines}


def test_it_stands_back_behind_the_daemon() -> None:
    cpu = min(os.sched_getaffinity(0))
    with Child(nice=7, cpus=(cpu,), memory_limit_mib=300) as child:
        ready = child.ready()
        assert ready.engine_version.startswith("onnxruntime ")
        assert facts(child)["Cpus_allowed_list"] == str(cpu)
        place = f"/proc/{child.process.pid}"
        assert int(Path(place, "oom_score_adj").read_text()) >= 500
        assert int(Path(place, "stat").read_text().rpartition(")")[2].split()[16]) >= 7
        assert limits(child)["Max core file size"][:2] == ["0", "0"]
        assert int(limits(child)["Max data size"][0]) > 300 << 20
        assert Path(place, "fd", "0").readlink() == Path("/dev/null")
        assert Path(place, "fd", "1").readlink() == Path(place, "fd", "2").readlink()


def test_a_cpu_that_is_not_there_is_no_reason_to_fail() -> None:
    with Child(cpus=(1023,)) as child:
        child.ready()


def test_signals_of_a_terminal_or_of_systemd_are_the_daemons() -> None:
    with Child() as child:
        child.ready()
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child.process.send_signal(one)
        assert isinstance(child.load(*child_models.doubling()), Done)


def test_it_ends_when_the_daemon_closes_its_end() -> None:
    with Child() as child:
        child.ready()
        child.stream.close()
        assert child.ended() == (0, "")


def test_it_ends_in_the_middle_of_a_message() -> None:
    with Child() as child:
        child.ready()
        child.stream.sendall((100).to_bytes(4, "little") + b"half")
        child.stream.shutdown(socket.SHUT_WR)
        code, said = child.ended()
        assert code == 1
        assert "a message that ends early" in said


@pytest.mark.parametrize(
    ("garbage", "words"),
    [
        (b"\4\0\0\0\x90\1\2\3", "no message"),
        (b"\0\0\0\0", "no message"),
        (b"GET / HTTP/1.1\r\n\r\n", "a message of 542393671 bytes"),
        ((MAX_MESSAGE_BYTES + 1).to_bytes(4, "little"), "a message of 67108865 bytes"),
        (b"\x10\0\0\0" + b"\x91" * 16, "no message"),
        (b"\x07\0\0\0\x81\xa4type\xc0", "no message"),
    ],
)
def test_garbage_ends_it(garbage: bytes, words: str) -> None:
    with Child() as child:
        child.ready()
        child.stream.sendall(garbage)
        child.stream.shutdown(socket.SHUT_WR)
        code, said = child.ended()
        assert code == 1
        assert words in said
        assert "Traceback" not in said


def test_files_that_nobody_announced_end_it() -> None:
    with Child() as child:
        child.ready()
        child.send(RunBatch(1, "d", ()), [sealed(b"")])
        child.stream.shutdown(socket.SHUT_WR)
        assert child.ended()[0] == 1


def test_messages_that_come_in_pieces_and_together() -> None:
    with Child() as child:
        child.ready()
        child.load(*child_models.doubling())
        item = child.item({"x": np.ones((1, 2), "f4")})
        frames = b""
        for number in (7, 8):
            message = msgspec.msgpack.encode(RunBatch(number, "acme/doubling", (item,)))
            frames += len(message).to_bytes(4, "little") + message
        for start in range(0, len(frames), 50):
            child.stream.sendall(frames[start : start + 50])
        answers = [child.receive(), child.receive()]
        assert [getattr(one, "id", None) for one in answers] == [7, 8]


def test_it_ends_with_its_parent_in_the_middle_of_a_run(python: Python) -> None:
    script = f"""
import os, signal, sys
import numpy
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from edge_agent.workers.protocol import RunBatch
from tests.agent.workers import child_models
from tests.agent.workers.child_driver import Child

child = Child()
child.ready()
child.load(*child_models.patient())
item = child.item({{"x": numpy.array([2**62])}})
child.send(RunBatch(child.next_id(), "acme/patient", (item,)))
stat = Path(f"/proc/{{child.process.pid}}/stat")
while stat.read_text().rpartition(")")[2].split()[0] != "R":
    pass
print(child.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with python.start(script) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        try:
            child = os.pidfd_open(number)
        except ProcessLookupError:  # it has ended, and was waited for
            child = None
        parent.communicate()
    if child is not None:
        assert select.select([child], [], [], 40)[0]
        os.close(child)


def test_a_parent_that_is_gone_already() -> None:
    with Child(parent_pid=1) as child:
        assert child.ended() == (1, "")


def test_it_takes_no_module_from_the_folder_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    with Child() as child:
        child.ready()
    assert sys.modules["msgspec"].__file__ != str(tmp_path / "msgspec.py")
