"""One child process, from its start until it has been waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from edge_agent.workers.tensor_memory import written_bytes

_FIRST_LOOK_S: Final = 0.001
_LONGEST_LOOK_S: Final = 0.05
_TAIL_BYTES: Final = 4096
_SHOWN_CHARACTERS: Final = 200
_PIPE_BYTES: Final = 65536

# What a worker's libraries may need. All else stays here: credentials, and systemd's NOTIFY_SOCKET.
_PASSED: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "TZ", "TMPDIR")
_PASSED_GROUPS: Final = ("LC_", "PYTHON", "MALLOC_", "OMP_", "OPENBLAS_", "ORT_")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class WorkerProcess:
    """A module of ours that runs in a fresh interpreter.

    Args:
        module: The module.
        arguments: Its command line.
        descriptors: What it inherits, under the same numbers.

    Raises:
        OSError: It can't be started.
    """

    def __init__(self, module: str, arguments: Sequence[str], descriptors: Sequence[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._look: asyncio.TimerHandle | None = None
        self._tail = b""
        # Nobody waits at the other end: what doesn't fit is lost, and the child goes on.
        self._errors, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            # Not in a thread: the kernel would end the child with the thread that started it.
            self._child = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
                # -P: the folder that the daemon runs in lends no module.
                [sys.executable, "-P", "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=theirs,
                pass_fds=descriptors,
                cwd="/",
                env={name: value for name, value in os.environ.items() if _is_passed(name)},
                start_new_session=True,  # Ctrl-C in a terminal is for the daemon alone
            )
        except BaseException:
            os.close(self._errors)
            raise
        finally:
            os.close(theirs)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def held_bytes(self, shared: int) -> int:
        """Returns its resident memory, or its private and all of the shared if that is more.

        Pages of the shared memory that it never touched are not resident, and yet held for it.

        Args:
            shared: Descriptor of its shared memory.
        """
        try:
            with open(f"/proc/{self._child.pid}/statm", "rb", buffering=0) as statm:
                fields = statm.read().split()
        except OSError:  # it is gone
            return 0
        resident, mapped = int(fields[1]) * _PAGE_BYTES, int(fields[2]) * _PAGE_BYTES
        private = resident - mapped
        return max(resident, private + written_bytes(shared))

    def kill(self) -> None:
        """Ends it now, with all that it started, and waits for it in the background."""
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
        self.bury()

    async def gone(self) -> None:
        """Waits until it has been waited for; somebody must have begun with `bury` or `kill`."""
        await asyncio.wait((self.exited,))  # which a cancelled caller doesn't cancel

    def bury(self) -> None:
        """Waits for its end in the background."""
        if self._look is None:
            self._look_again(_FIRST_LOOK_S)

    def _look_again(self, wait_s: float) -> None:
        code = self._child.poll()
        if code is None:
            # A child process says when it is dead only through SIGCHLD, which belongs to the loop.
            longer_s = min(wait_s * 2, _LONGEST_LOOK_S)
            self._look = self._loop.call_later(wait_s, self._look_again, longer_s)
        elif not self.exited.done():
            self.drain()
            os.close(self._errors)
            self.exited.set_result(code)

    def drain(self) -> None:
        """Takes in what it said on standard error."""
        if self.exited.done():
            return
        try:
            said = os.read(self._errors, _PIPE_BYTES)
        except BlockingIOError:
            return
        self._tail = (self._tail + said)[-_TAIL_BYTES:]

    def last_words(self) -> str:
        """Returns the last line that it said on standard error, printable and not too long."""
        self.drain()
        line = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return "".join(one if one.isprintable() else "?" for one in line)[:_SHOWN_CHARACTERS]


def _is_passed(name: str) -> bool:
    return name in _PASSED or name.startswith(_PASSED_GROUPS)
