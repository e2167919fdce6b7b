"""What the daemon costs: memory, CPU time for the cache, and the start of a client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TypeAlias

from report import Row

from serving import processes, questions
from serving.connections import Server
from serving.load import Flow, run
from serving.measuring import Bench
from serving.servers import PEERS, Daemon

_IDLE_S = 5.0
_CLIENTS = 4
_RUNS = 7  # of a command, in each turn
_BARE = ("-I", "-S")

Command: TypeAlias = Sequence[str | Path]


def memory(bench: Bench) -> list[Row]:
    """A daemon that nobody asks."""
    with bench.daemon().running() as daemon:
        sleep(_IDLE_S)
        rss = processes.rss_mib(daemon.pid)
        workers = processes.tree(daemon.pid)[1:]
        return [
            Row("serve.idle_rss_mib", rss, "MiB", "the daemon's own process; bar 60"),
            Row("serve.idle_pss_mib.daemon", processes.pss_mib([daemon.pid]), "MiB"),
            Row(
                "serve.idle_pss_mib.workers",
                processes.pss_mib(workers),
                "MiB",
                f"{len(workers)} processes",
            ),
        ]


def cache(bench: Bench) -> list[Row]:
    """CPU time of requests that never come twice, with the cache and without."""
    source = questions.tensors(bench.tensors)
    with (
        bench.daemon("with").running() as with_cache,
        bench.daemon("without", cache_mib=0).running() as without,
    ):

        def cpu_ms(server: Server) -> Callable[[], float]:
            def measured() -> float:
                flow = Flow(server.connect, source, _CLIENTS)
                before = processes.cpu_s(server.pid)
                run([flow], 2 * bench.seconds)
                return (processes.cpu_s(server.pid) - before) / len(flow.samples) * 1e3

            return measured

        taken = bench.alternating({"with": cpu_ms(with_cache), "without": cpu_ms(without)})
    with_ms, without_ms = median(taken["with"]), median(taken["without"])
    return [
        Row("serve.cache_miss_cpu_ratio", with_ms / without_ms, "ratio"),
        Row("serve.cpu_ms.cache", with_ms, "ms", "of the daemon's whole tree, a request"),
        Row("serve.cpu_ms.no_cache", without_ms, "ms"),
    ]


def thin_client(bench: Bench) -> list[Row]:
    """`edge-agent infer photo.jpg` through the daemon, beside the smallest client there is."""
    daemon = bench.daemon()
    photo = bench.folder / "photo.jpg"
    photo.write_bytes(bench.frames.pictures[0])
    ours: Command = [bench.agent, "infer", photo]
    smallest: Command = [sys.executable, *_BARE, PEERS / "smallest_client.py", daemon.socket, photo]
    with daemon.running():
        _check_that_the_daemon_answers([*ours, "--json"], daemon)
        taken = bench.alternating(
            {
                "ours": lambda: _wall_ms(ours, daemon),
                "smallest": lambda: _wall_ms(smallest, daemon),
                "ours.new": lambda: _wall_ms(ours, daemon, bench, photo),
                "smallest.new": lambda: _wall_ms(smallest, daemon, bench, photo),
            }
        )
    times = {name: median(chain.from_iterable(runs)) for name, runs in taken.items()}
    note = "the same photo each time"
    return [
        Row("serve.thin_client_ratio", times["ours"] / times["smallest"], "ratio", note),
        Row(
            "serve.thin_client_ratio.new_photos", times["ours.new"] / times["smallest.new"], "ratio"
        ),
        *(Row(f"serve.client_ms.{name}", ms, "ms") for name, ms in times.items()),
    ]


def _wall_ms(
    command: Command, daemon: Daemon, bench: Bench | None = None, photo: Path | None = None
) -> list[float]:
    """Returns how long some runs of a command took; with a bench each sees another photo."""
    taken = []
    for _ in range(_RUNS):
        if bench and photo:
            photo.write_bytes(b"".join(bench.frames.unique()))
        started = perf_counter()
        _run(command, daemon)
        taken.append((perf_counter() - started) * 1e3)
    return taken


def _run(command: Command, daemon: Daemon) -> str:
    environment = os.environ | daemon.environment
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


def _check_that_the_daemon_answers(command: Command, daemon: Daemon) -> None:
    if json.loads(_run(command, daemon)).get("answered_by") != "daemon":
        raise RuntimeError(f"{command} is answered in its own process")
