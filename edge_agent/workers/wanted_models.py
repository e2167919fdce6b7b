"""The models that each new worker of a slot loads before it serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from edge_agent.errors import AgentError, WorkerFailedError
from edge_agent.workers.opening import opened
from edge_agent.workers.work import OpenModel
from edge_agent.workers.worker import Worker
from edge_signing.errors import SigningError

# A model that ends a new worker so often in a row is given up.
_MAX_CRASHES: Final = 3


class WantedModels:
    """Models, in the order in which they were loaded first.

    Args:
        open_model: Opens them.
        load_timeout_s: How long loading one may take, in seconds.
        lost: Told which can't be loaded again, and why; it is wanted no more.
    """

    def __init__(
        self, open_model: OpenModel, load_timeout_s: float, lost: Callable[[str, Exception], None]
    ) -> None:
        self._open_model = open_model
        self._load_timeout_s = load_timeout_s
        self._lost = lost
        self._digests: dict[str, None] = {}
        self._crashes: Counter[str] = Counter()

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def add(self, digest: str) -> None:
        """Has new workers load a model."""
        self._digests[digest] = None

    def remove(self, digest: str) -> None:
        """Has new workers do without a model."""
        self._digests.pop(digest, None)
        del self._crashes[digest]

    def clear(self) -> None:
        """Has new workers load nothing."""
        self._digests.clear()

    async def load_into(self, worker: Worker) -> set[str]:
        """Loads all, but for those that are lost, and returns which.

        Raises:
            WorkerFailedError: The worker ended.
        """
        return {one for one in tuple(self._digests) if await self._has_loaded(worker, one)}

    def lose(self, digest: str, error: Exception) -> None:
        """Gives a model up."""
        if digest in self:
            self.remove(digest)
            self._lost(digest, error)

    async def _has_loaded(self, worker: Worker, digest: str) -> bool:
        try:
            async with opened(self._open_model, digest) as files:
                await worker.load(files, self._load_timeout_s)
        except WorkerFailedError as error:
            self._crashes[digest] += 1
            if self._crashes[digest] >= _MAX_CRASHES:
                self.lose(digest, error)
            raise
        except (AgentError, SigningError, OSError) as error:
            self.lose(digest, error)
            return False
        del self._crashes[digest]
        return True
