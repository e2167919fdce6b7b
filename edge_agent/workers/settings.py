"""How a worker and a pool of equal workers are set up."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from edge_agent.calls import Priority
from edge_agent.workers.protocol import ChildSettings

Trouble = Literal["crashed", "hung", "memory", "untrue", "canary"]
"""Why a worker was replaced: it died, took too long, held too much, broke the protocol, or failed
its own golden input."""


class WorkerSettings(Struct, frozen=True):
    """One worker process.

    Attributes:
        engine: Which engine it has.
        max_image_bytes: Largest image file, in bytes.
        max_image_pixels: Most pixels of an image.
        threads: Of the engine.
        memory_limit_mib: It is ended when it holds more, beside its engine, in MiB; None means
            no limit.
        nice: Added to its niceness.
        cpus: Numbers of the CPUs that it may use; empty means all.
    """

    engine: str
    max_image_bytes: int
    max_image_pixels: int
    threads: int = 1
    memory_limit_mib: int | None = None
    nice: int = 0
    cpus: tuple[int, ...] = ()

    def for_child(self, parent_pid: int) -> ChildSettings:
        """Returns what the child is told.

        Args:
            parent_pid: With whom it ends.
        """
        values = msgspec.structs.asdict(self)
        del values["engine"]
        return ChildSettings(**values, parent_pid=parent_pid)


class PoolSettings(Struct, frozen=True):
    """Equal workers.

    Attributes:
        worker: Each of them.
        count: How many.
        classes: Which calls they take.
        memory_mib: A worker that holds more is replaced between two batches, in MiB.
        canary_s: A worker that answered nothing for so long must answer a golden input, in seconds.
        probe_timeout_s: How long that may take.
        load_timeout_s: How long loading a model may take, in seconds.
    """

    worker: WorkerSettings
    count: int = 1
    classes: frozenset[Priority] = frozenset(Priority)
    memory_mib: int | None = None
    canary_s: float = 10.0
    probe_timeout_s: float = 10.0
    load_timeout_s: float = 60.0
