"""What a worker can't do once it is confined."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edge_agent.workers.child import confinement, seccomp
from tests.agent import models
from tests.agent.conftest import Python

ALLOWED, REFUSED, UNKNOWN = "allowed", "refused", "unknown"
X86_64, ARM64, RISCV64 = (seccomp._MACHINES[name] for name in ("x86_64", "aarch64", "riscv64"))
SELF, OTHER = 4242, 1
THREAD, PROCESS = 0x3D0F00, 0x1200011  # flags of pthread_create and fork in glibc

SCRIPT = """
import ctypes, os, signal, sys, threading
from edge_agent.workers.child.confinement import confine

libc = ctypes.CDLL(None, use_errno=True)
holds = confine() or ""
print("Landlock" in holds, "seccomp" in holds)

def tell(what, work):
    try:
        work()
        print(what)
    except OSError as error:
        print(what, error.strerror)

def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""


def told(python: Python, script: str, needs: str, *arguments: str | Path) -> list[str]:
    """What a confined process tells; the test is skipped where the kernel has no such thing."""
    landlock, filters, *rest = python.run(SCRIPT + script, *arguments).split(None, 2)
    if {"Landlock": landlock, "seccomp": filters}[needs] != "True":
        pytest.skip(f"no {needs} here")
    return rest[0].splitlines() if rest else []


def test_it_opens_no_connection_and_starts_no_program(python: Python) -> None:
    script = """
import socket, subprocess
mine, _ = os.pipe()
tell("socket", lambda: socket.socket(socket.AF_UNIX))
tell("internet", lambda: socket.create_connection(("127.0.0.1", 9)))
tell("pair", socket.socketpair)
tell("fork", os.fork)
tell("exec", lambda: os.execv("/bin/true", ["true"]))
tell("program", lambda: subprocess.run(["/bin/true"]))
"""
    denied = [f"{what} Operation not permitted" for what in
              ("socket", "internet", "pair", "fork", "exec", "program")]  # fmt: skip
    assert told(python, script, "seccomp") == denied


def test_it_leaves_other_processes_alone(python: Python) -> None:
    script = """
import resource
parent = os.getppid()
tell("signal", lambda: os.kill(parent, 0))
tell("group", lambda: os.kill(0, 0))
tell("own", lambda: os.kill(os.getpid(), 0))
tell("limit", lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)))
tell("own limit", lambda: resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)))
tell("watch", lambda: os.pidfd_open(parent))
"""
    no = "Operation not permitted"
    assert told(python, script, "seccomp") == [
        f"signal {no}", f"group {no}", "own", f"limit {no}", "own limit", f"watch {no}",
    ]  # fmt: skip


def test_a_socket_that_is_there_goes_on(python: Python) -> None:
    script = """
import socket
mine, theirs = socket.socketpair()
""" + SCRIPT + """
mine.sendall(b"told ")
print(theirs.recvmsg(100, 100)[0].decode())
mine.close()
theirs.close()
"""  # fmt: skip
    assert python.run(script).splitlines()[-1] == "told "


def test_engines_run_and_start_threads(python: Python) -> None:
    script = """
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
import numpy, PIL.Image, onnxruntime
done = []
threads = [threading.Thread(target=done.append, args=(place,)) for place in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sorted(done), len(onnxruntime.get_available_providers()) > 0)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
model = bytes.fromhex(sys.argv[1])
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
print(session.run(None, {"x": numpy.ones((1, 2), "f4")})[0].tolist())
"""
    lines = python.run(SCRIPT + script, models.rows().hex()).splitlines()
    assert lines[-2:] == ["[0, 1, 2] True", "[[2.0, 2.0]]"]


def test_threads_are_confined_too(python: Python) -> None:
    script = """
import socket
thread = threading.Thread(target=tell, args=("socket", socket.socket))
thread.start()
thread.join()
"""
    assert told(python, script, "seccomp") == ["socket Operation not permitted"]


def test_it_reads_no_files_of_the_agent_and_writes_none(python: Python, tmp_path: Path) -> None:
    secret = tmp_path / "config" / "keys" / "acme.key"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    script = """
secret = sys.argv[1]
tell("read", lambda: os.open(secret, os.O_RDONLY))
tell("list", lambda: os.listdir(os.path.dirname(secret)))
tell("around", lambda: os.open("/proc/self/root" + secret, os.O_RDONLY))
tell("environment", lambda: os.open(f"/proc/{os.getppid()}/environ", os.O_RDONLY))
tell("write", lambda: os.open(secret + ".new", os.O_WRONLY | os.O_CREAT))
tell("temporary", lambda: os.open("/tmp/edge-agent-test", os.O_WRONLY | os.O_CREAT))
tell("remove", lambda: os.remove(secret))
tell("library", lambda: os.open(os.__file__, os.O_RDONLY))
tell("processor", lambda: os.open("/proc/cpuinfo", os.O_RDONLY))
tell("memory", lambda: os.ftruncate(os.memfd_create("m"), 1))
"""
    assert told(python, script, "Landlock", secret) == [
        *(f"{what} Permission denied" for what in
          ("read", "list", "around", "environment", "write", "temporary", "remove")),
        "library", "processor", "memory",
    ]  # fmt: skip


def test_another_abi_is_refused(python: Python) -> None:
    script = """
import platform
tell("x32", lambda: call(0x40000000 | 39))
tell("usual", lambda: call(39 if platform.machine() == "x86_64" else 172))
"""
    lines = told(python, script, "seccomp")
    assert lines[-1] == "usual"
    assert lines[0] != "x32"


def test_where_the_kernel_can_nothing_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernel:
        def prctl(self, *unused: int) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Kernel())
    assert confinement.confine() is None


def judged(machine: seccomp._Machine, audit: int, number: int, argument: int = 0) -> str:
    """Runs the filter as the kernel does."""
    data = struct.pack("=iIQ6Q", number, audit, 0, argument, 0, 0, 0, 0, 0)
    program, place, value = seccomp.program(machine, SELF), 0, 0
    while True:
        code, yes, no, k = program[place]
        place += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, k)
        elif code == 0x06:
            return {0x7FFF0000: ALLOWED, 0x00050001: REFUSED, 0x00050026: UNKNOWN}[k]
        else:
            holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            place += yes if holds else no


@pytest.mark.parametrize("machine", [X86_64, ARM64, RISCV64])
@pytest.mark.parametrize(
    ("numbers", "argument", "verdict"),
    [
        ((0, 63), 0, ALLOWED),  # read
        ((202, 98), 0, ALLOWED),  # futex
        ((47, 212), 0, ALLOWED),  # recvmsg
        ((41, 198), 0, REFUSED),  # socket
        ((59, 221), 0, REFUSED),  # execve
        ((101, 117), 0, REFUSED),  # ptrace
        ((425, 425), 0, REFUSED),  # io_uring_setup
        ((435, 435), 0, UNKNOWN),  # clone3
        ((56, 220), THREAD, ALLOWED),  # clone
        ((56, 220), PROCESS, REFUSED),
        ((62, 129), SELF, ALLOWED),  # kill
        ((62, 129), OTHER, REFUSED),
        ((62, 129), 2**64 - 1, REFUSED),
        ((234, 131), SELF, ALLOWED),  # tgkill
        ((234, 131), OTHER, REFUSED),
        ((302, 261), 0, ALLOWED),  # prlimit64
        ((302, 261), SELF, ALLOWED),
        ((302, 261), OTHER, REFUSED),
    ],
)
def test_the_filter_of_every_architecture(
    machine: seccomp._Machine, numbers: tuple[int, int], argument: int, verdict: str
) -> None:
    assert judged(machine, machine.audit, numbers[machine.column], argument) == verdict
    others = {X86_64.audit, ARM64.audit, RISCV64.audit, 0x40000003} - {machine.audit}
    for audit in others:
        assert judged(machine, audit, numbers[machine.column], argument) == REFUSED


def test_x32_is_another_abi() -> None:
    assert judged(X86_64, X86_64.audit, 0x40000000) == REFUSED
    assert judged(X86_64, X86_64.audit, -1) == REFUSED
