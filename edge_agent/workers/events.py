"""What a pool tells, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class PoolEvents(Protocol):
    """Told of what happens to a pool's workers."""

    def on_worker_failed(self, digest: str | None, reason: str) -> None:
        """A worker ended that should not; another takes its place.

        Args:
            digest: The model that it was at work on; None where that is not known for sure.
            reason: What happened, for logs.
        """

    def on_recycled(self, reason: str) -> None:
        """A worker was replaced, and nobody noticed.

        Args:
            reason: How it held much memory, for logs.
        """

    def on_model_lost(self, digest: str, error: Exception) -> None:
        """A worker can't serve a model any more, and goes on with the others.

        Args:
            digest: The model.
            error: Why: it can't be opened or loaded again, or answers its golden input wrongly.
        """


class WorkerStatus(Struct, frozen=True):
    """One worker of a pool.

    Attributes:
        pid: Number of its process; None while it is being replaced.
        held_bytes: How much memory it holds.
        last_proof: When it last answered rightly, or had nothing to answer for, on the clock of
            ``time.monotonic``.
        engine_version: Package and version of its engine; empty while it is being replaced.
        confinement: What the kernel keeps it from; None where it can't.
    """

    pid: int | None
    held_bytes: int
    last_proof: float
    engine_version: str = ""
    confinement: str | None = None


class PoolStatus(Struct, frozen=True):
    """A pool.

    Attributes:
        workers: Its workers.
        restarts: How often one was replaced, by reason: a `Trouble`, ``start`` or ``recycled``.
    """

    workers: tuple[WorkerStatus, ...]
    restarts: Mapping[str, int]
