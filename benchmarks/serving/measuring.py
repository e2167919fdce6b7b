"""Two sides of a ratio: in turns, in one run, medians."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple, TypeVar

from serving import processes
from serving.connections import Server
from serving.inputs import Frames, Source, Tensors
from serving.load import Flow, run
from serving.servers import PEERS, Daemon

_OK = 200
_T = TypeVar("_T")


@dataclass(frozen=True)
class Bench:
    """What every part of the benchmark works with.

    Attributes:
        agent: The command under measurement.
        folder: For files and sockets.
        rounds: How often each side has its turn.
        seconds: How long a turn takes.
        open_loop_s: How long an open loop lasts.
        tensors: Inputs.
        frames: Inputs.
    """

    agent: Path
    folder: Path
    rounds: int
    seconds: float
    open_loop_s: float
    tensors: Tensors
    frames: Frames

    def daemon(self, name: str = "agent", cache_mib: int = 64) -> Daemon:
        """Returns a daemon with a folder of its own."""
        return Daemon(self.agent, self.folder / name, cache_mib)

    def alternating(self, works: Mapping[str, Callable[[], _T]]) -> dict[str, list[_T]]:
        """Lets each side have its turns; the first of each doesn't count."""
        results: dict[str, list[_T]] = {name: [] for name in works}
        for turn in range(self.rounds + 1):
            for name, work in works.items():
                result = work()
                if turn:
                    results[name].append(result)
        return results

    @contextmanager
    def bare(self) -> Iterator[Loop]:
        """Starts the process of the bare loops on the servers' core."""
        folder = self.folder / "frames"
        folder.mkdir(exist_ok=True)
        for number, picture in enumerate(self.frames.pictures):
            (folder / f"{number:02}.jpg").write_bytes(picture)
        with loop([sys.executable, PEERS / "bare.py", folder], self.folder) as started:
            yield started


class Segment(NamedTuple):
    """One side's turn.

    Attributes:
        rate: Answers a second.
        p50_ms: Median latency.
        p99_ms: 99 of 100 took no longer.
    """

    rate: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies_ms: list[float], seconds: float) -> Segment:
        """Sums up latencies."""
        count = len(latencies_ms)
        return cls(count / seconds, median(latencies_ms), percentile(latencies_ms, 99))


class Loop:
    """A process that measures itself when it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def turn(self, line: str) -> Segment:
        """Sends a line and sums up the latencies that come back; for loops with one client."""
        taken = self.latencies_ms(line)
        return Segment.of(taken, sum(taken) / 1e3)

    def latencies_ms(self, line: str) -> list[float]:
        """Sends a line and returns the latencies that come back."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self._process.args!r} ended")
        return [ns / 1e6 for ns in json.loads(answer)]


@contextmanager
def loop(
    command: list[str | Path], folder: Path, cpu: int = processes.SERVER_CPU
) -> Iterator[Loop]:
    """Starts a process that reads what to do from its input."""
    with processes.started(command, {}, folder, cpu=cpu, pipes=True) as process:
        yield Loop(process)


def closed(server: Server, source: Source, clients: int, seconds: float) -> Segment:
    """Asks in a closed loop: each client asks again when it was answered.

    Raises:
        RuntimeError: An answer that isn't 200.
    """
    flow = Flow(server.connect, source, clients)
    taken_s = run([flow], seconds)
    wrong = {sample.status for sample in flow.samples} - {_OK}
    if wrong or not flow.samples:
        raise RuntimeError(f"closed loop: answers {sorted(wrong)} of {len(flow.samples)}")
    return Segment.of([sample.ms for sample in flow.samples], taken_s)


def percentile(values: list[float], percent: int) -> float:
    """Returns a percentile; that of a single value is the value."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def rate(segments: list[Segment]) -> float:
    """Returns the median rate."""
    return median(one.rate for one in segments)


def p50_ms(segments: list[Segment]) -> float:
    """Returns the median of median latencies."""
    return median(one.p50_ms for one in segments)


def p99_ms(segments: list[Segment]) -> float:
    """Returns the median of the 99th percentiles."""
    return median(one.p99_ms for one in segments)
