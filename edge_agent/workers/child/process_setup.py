"""How a worker process stands among the others: priority, memory, signals."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from edge_agent.child_process import limit
from edge_agent.memory_allocator import reuse_large_buffers
from edge_agent.workers.child.privileges import give_up_root

if TYPE_CHECKING:
    from edge_agent.workers.protocol import ChildSettings

_PR_SET_PDEATHSIG: Final = 1
_OOM_SCORE: Final = "500"
_GC_THRESHOLD: Final = 20_000
# So long does a run wait, each time it needs the interpreter, for a model that is being loaded.
_SWITCH_S: Final = 0.0005


def settle(settings: ChildSettings) -> str | None:
    """Prepares this process, before it imports an engine.

    Returns:
        As whom it runs, where that was root; None where it wasn't.
    """
    _end_with(settings.parent_pid)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the daemon decides
        signal.signal(ignored, signal.SIG_IGN)
    limit(resource.RLIMIT_CORE, 0)
    _take_place(settings)
    _close_standard_streams()
    reuse_large_buffers()
    # One engine has threads of its own already, and no tensor here is worth BLAS's.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": str(settings.threads)}
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    user = give_up_root()
    _end_with(settings.parent_pid)
    return user


def _end_with(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before we asked to be told
        os._exit(1)


def _take_place(settings: ChildSettings) -> None:
    # Where memory runs out, a worker is replaced; the daemon is not.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    if settings.nice:
        os.nice(settings.nice)
    if settings.cpus:
        with suppress(OSError):  # none of them is there, or allowed: the kernel's choice stays
            os.sched_setaffinity(0, settings.cpus)


def _close_standard_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # what a library prints belongs to the log


def settle_down(memory_limit_mib: int | None) -> None:
    """Ends the start: what is imported by now stays, and models get the memory that remains.

    Args:
        memory_limit_mib: Beside what is in use, in MiB.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
    sys.setswitchinterval(_SWITCH_S)
    if memory_limit_mib is not None:
        limit(resource.RLIMIT_DATA, _data_bytes() + (memory_limit_mib << 20))


def _data_bytes() -> int:
    """Returns what RLIMIT_DATA counts now: private writable memory."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[5])  # data + stack
    return pages * resource.getpagesize()
