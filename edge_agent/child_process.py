"""Work that may crash, hang or never give its memory back, in a process of its own.

The parent hands a request to a module of ours and waits, no longer than it was told to. The child
ends with its parent, whatever becomes of either.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
_MAX_WRITTEN_BYTES: Final = 64 * 1024 * 1024
_SHOWN_BYTES: Final = 4096
_PR_SET_PDEATHSIG: Final = 1
_T = TypeVar("_T")


class Ended(NamedTuple):
    """How a child ended.

    Attributes:
        answer: What it answered, whole or not, at most 16 MiB.
        problem: How it failed, as in "it …"; None where it ended well.
        said: Its last words on standard error.
        was_stopped: Whether it took too long.
    """

    answer: bytes
    problem: str | None
    said: str
    was_stopped: bool = False


def run(module: str, request: bytes, timeout_s: float) -> Ended:
    """Runs a module in a fresh interpreter.

    Args:
        module: Its `main` begins with `attach`.
        request: What it reads from standard input.
        timeout_s: How long it may take, in seconds.

    Raises:
        OSError: It can't be started.
    """
    # -P: the folder that the command runs in lends no module.
    command = [sys.executable, "-P", "-m", module]
    with _buffer("answer") as answer, _buffer("errors") as errors:
        child = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
            command, stdin=subprocess.PIPE, stdout=answer, stderr=errors
        )
        was_stopped = False
        try:
            child.communicate(str(os.getpid()).encode() + b"\n" + request, timeout=timeout_s)
            problem = ending(child.returncode) if child.returncode else None
        except subprocess.TimeoutExpired:
            problem = f"took longer than {timeout_s:g} s, and was stopped"
            was_stopped = True
        finally:
            child.kill()
            child.communicate()
        said = _tail(errors).decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Ended(os.pread(answer, MAX_ANSWER_BYTES, 0), problem, said, was_stopped)


def attach() -> tuple[bytes, int]:
    """Makes this process a child of `run`: it ends with its parent, and can't print without end.

    Returns:
        The request, and the descriptor that takes the answer; what is printed goes elsewhere.
    """
    import ctypes
    import resource

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent, _, request = sys.stdin.buffer.read().partition(b"\n")
    if os.getppid() != int(parent):  # it died before we asked to be told
        os._exit(1)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_FSIZE, _MAX_WRITTEN_BYTES)
    answer = os.dup(1)
    os.dup2(2, 1)
    return request, answer


def limit(kind: int, at_most: int) -> None:
    """Lowers a limit of this process (getrlimit(2)); a lower one stays, which we can't raise."""
    import resource

    there = [one for one in resource.getrlimit(kind) if one != resource.RLIM_INFINITY]
    lowest = min([at_most, *there])
    resource.setrlimit(kind, (lowest, lowest))


def pack(value: Any) -> bytes:
    """Returns a value as ASCII: msgspec's own JSON can't hold a path that isn't UTF-8."""
    return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def unpack(data: bytes, kind: type[_T]) -> _T:
    """Returns what was packed.

    Raises:
        ValueError: It is cut off, or of another kind.
    """
    try:
        return msgspec.convert(json.loads(data), kind)
    # MsgspecError: no ValueError before msgspec 0.20
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


@contextmanager
def _buffer(name: str) -> Iterator[int]:
    descriptor = os.memfd_create(f"edge-agent-{name}")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tail(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _SHOWN_BYTES, max(0, size - _SHOWN_BYTES))


def ending(code: int) -> str:
    """Says how a process ended, as in "it …".

    Args:
        code: As `subprocess` gives it.
    """
    if code >= 0:
        return f"ended with the exit code {code}"
    try:
        return f"was ended by the signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was ended by the signal {-code}"
