"""How much memory a worker may hold: beyond one bound it is replaced, beyond another, ended."""

from __future__ import annotations

from edge_agent.workers.settings import PoolSettings
from edge_agent.workers.worker import Worker

_MIB = 1024 * 1024


class MemoryCaps:
    """The bounds of one slot's worker.

    Args:
        settings: The pool's.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._soft_mib = settings.memory_mib
        self._hard_mib = settings.worker.memory_limit_mib
        self._enough_bytes = 0

    def measure(self, worker: Worker) -> None:
        """Notes what a worker needs that has just loaded: a new one would hold no less."""
        held = worker.held_bytes()
        self._enough_bytes = max((self._soft_mib or 0) * _MIB, held + held // 4)

    def excess(self, worker: Worker) -> str | None:
        """Says how a worker holds more than it ever may, as in "it …"; None where it doesn't."""
        if self._hard_mib is None:
            return None
        held_mib, most_mib = worker.held_bytes() // _MIB, worker.idle_bytes // _MIB + self._hard_mib
        return f"held {held_mib} MiB, may hold {most_mib}" if held_mib > most_mib else None

    def growth(self, worker: Worker) -> str | None:
        """Says how a worker holds more than a new one would; None where it doesn't."""
        if self._soft_mib is None:
            return None
        held = worker.held_bytes()
        if held <= self._enough_bytes:
            return None
        return f"held {held // _MIB} MiB, is replaced beyond {self._enough_bytes // _MIB}"
