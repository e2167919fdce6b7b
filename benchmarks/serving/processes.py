"""Processes under measurement: pinned, in a group of their own, and gone when the work is done."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SERVER_CPU, LOAD_CPU = 0, 1
_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_S = 10.0
_STARTED = 19  # field of /proc/PID/stat, counted from the state


def pin(cpu: int) -> None:
    """Keeps this process, and what it will start, on one core."""
    os.sched_setaffinity(0, {cpu})


@contextmanager
def started(
    command: Sequence[str | Path],
    environment: Mapping[str, str],
    folder: Path,
    *,
    cpu: int = SERVER_CPU,
    pipes: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command on a core of its own, and ends all of its processes.

    Args:
        command: What to run.
        environment: Added to ours.
        folder: Where it runs; its output goes to ``log`` there.
        cpu: Which core it gets.
        pipes: Whether its input and output are pipes instead.
    """
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else log,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: pin(cpu),
        )
    try:
        yield process
    finally:
        _end(process)


def tree(pid: int) -> list[int]:
    """Returns a process and all that it and its children started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def cpu_s(pid: int) -> float:
    """Returns the CPU seconds of a process and all beneath it, those that ended included."""
    rows = [fields for one in tree(pid) if (fields := _stat(one))]
    return sum(int(tick) for fields in rows for tick in fields[11:15]) / _TICKS


def rss_mib(pid: int) -> float:
    """Returns VmRSS."""
    return _kib(Path(f"/proc/{pid}/status"), "VmRSS") / 1024


def pss_mib(pids: Sequence[int]) -> float:
    """Returns the proportional set size of processes together."""
    return sum(_kib(Path(f"/proc/{pid}/smaps_rollup"), "Pss") for pid in pids) / 1024


def _kib(file: Path, key: str) -> int:
    lines = file.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":"))


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat from the state on, none where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _end(process: subprocess.Popen[str]) -> None:
    """Asks the process to stop; then kills its group, and what left the group."""
    others = {one: _stat(one)[_STARTED] for one in tree(process.pid)[1:] if _stat(one)}
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one, begun in others.items():
        if _stat(one)[_STARTED:][:1] == [begun]:  # the number may be another's by now
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
