"""What workers do, and where they get it: the boundary to the scheduler above."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from edge_agent.calls import Answer, Priority, Query
from edge_agent.errors import AgentError
from edge_agent.workers.answer_form import AnswerForm

Outcome: TypeAlias = Answer | AgentError


class Batch(Struct, frozen=True):
    """Queries that run together.

    Attributes:
        model: Digest of the bundle.
        queries: One a caller; they agree in everything but their values.
        timeout_s: How long the run may take, in seconds; then the worker is killed.
        done: Takes one outcome a query, in their order. Where the worker failed, each is a
            `WorkerFailedError`.
    """

    model: str
    queries: tuple[Query, ...]
    timeout_s: float
    done: Callable[[Sequence[Outcome]], None]


class WorkSource(Protocol):
    """Where a worker gets its next batch."""

    async def next_batch(self, models: Container[str], classes: Container[Priority]) -> Batch:
        """Waits for work.

        Args:
            models: Digests of the models that the worker has loaded; read while waiting, so
                models may come and go. `WorkSource` is told of a change by ``models_changed``.
            classes: Classes that the worker serves.
        """

    def models_changed(self) -> None:
        """Has every waiting worker look again at what it could do."""


class ModelFiles(Struct, frozen=True):
    """What a worker needs to load a model: verified bytes, nothing that it must trust.

    Attributes:
        digest: Digest of the bundle.
        name: Bundle name.
        version: Semantic version.
        description: The model.yaml's description, as MessagePack (`ModelDescription`).
        engine: Which engine is to run it.
        files: Sealed memory (memfd_create(2)) by file name: the model file, its external data,
            labels and golden files. Whoever made them closes them.
        form: What its answers look like.
    """

    digest: str
    name: str
    version: str
    description: bytes
    engine: str
    files: dict[str, int]
    form: AnswerForm


class Loaded(Struct, frozen=True):
    """How a model does after it was loaded.

    Attributes:
        run_ms: Median of a few runs with the golden input (or a blank one), in milliseconds; 0
            where it has no golden input and takes no blank one.
        batches: Whether it has a batch axis, and rows that ran together came out as alone.
        engine_version: Package and version of the engine.
    """

    run_ms: float
    batches: bool
    engine_version: str


OpenModel: TypeAlias = Callable[[str], Awaitable[ModelFiles]]
"""Verifies a bundle again and returns its files, by digest; the caller closes them."""
