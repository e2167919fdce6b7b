"""What the server asks: the daemon's models and their answers, as one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.calls import Call, Reply
    from edge_agent.description import ModelDescription
    from edge_agent.types import ModelRef

State = Literal["READY", "LOADING", "UNLOADING", "UNAVAILABLE"]


class ModelStatus(Struct, frozen=True):
    """One version of one model.

    Attributes:
        ref: Name, version and digest; the last two may be empty where it was never opened.
        state: READY only while calls are routed to it; also of one that rests, since a call
            wakes it.
        reason: Why it isn't loaded; empty where it is.
        is_live: Whether a call without a version goes to it.
        engine: Which engine runs it; empty where it isn't loaded.
        description: Its model.yaml; None where it was never opened.
        batches: Whether rows of several callers run together.
        aliases: Other names that mean it.
    """

    ref: ModelRef
    state: State
    reason: str
    is_live: bool
    engine: str
    description: ModelDescription | None
    batches: bool
    aliases: tuple[str, ...] = ()


class Duration(Struct):
    """How often something happened, and how long it took together.

    Attributes:
        count: How often.
        ns: Nanoseconds of all of them.
    """

    count: int = 0
    ns: int = 0


class ModelStatistics(Struct):
    """Counters of one version since it was loaded; named as in the statistics extension.

    Attributes:
        ref: Which.
        last_inference_ms: Milliseconds since the epoch; 0 for never.
        inference_count: Rows that were answered by running.
        execution_count: Runs; rows of one batch count once.
        success: Calls that were answered, from arrival to answer.
        fail: Calls that were not.
        queue: Waiting.
        compute_input: Decoding and preparing.
        compute_infer: Running.
        compute_output: Making the answer.
        cache_hit: Answers from the cache.
        cache_miss: Lookups that found none.
        execution_share: `execution_count`, not rounded: a run of several callers is shared.
    """

    ref: ModelRef
    last_inference_ms: int
    inference_count: int
    execution_count: int
    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration
    execution_share: float = 0.0


class Service(Protocol):
    """The daemon's models."""

    def is_ready(self) -> bool:
        """Whether every model that should be served is."""

    def models(self) -> Sequence[ModelStatus]:
        """Returns all versions that are known or should be, sorted by name and version."""

    def model(self, name: str, version: str | None) -> ModelStatus:
        """Returns one version, the live one where none is named.

        Raises:
            ModelNotFoundError: There is none, and there should be none.
        """

    def statistics(self, name: str | None, version: str | None) -> Sequence[ModelStatistics]:
        """Returns the counters of one version, of all versions of a model, or of all models.

        Raises:
            ModelNotFoundError: There is none.
        """

    async def infer(self, call: Call) -> Reply:
        """Answers one call; cancelling it takes it out of the queue.

        Raises:
            ModelNotFoundError: No such model or version.
            ModelNotReadyError: It is known, but not loaded.
            BadInputError: The query is at fault.
            OverloadedError: A queue is full.
            DeadlineExceededError: Its time ran out.
            WorkerFailedError: The worker died of it.
            UnavailableError: The engine failed over it.
        """

    async def load(self, name: str, version: str | None) -> ModelStatus:
        """Loads an installed version and makes it the live one.

        Without a version it is the store's active one; one that is loaded already is only made
        live.

        Raises:
            ModelNotFoundError: It isn't installed.
            AgentError: It can't be loaded; what was live stays so.
            edge_signing.errors.SigningError: It can't be trusted.
        """

    async def unload(self, name: str, version: str | None) -> None:
        """Takes a model (one version of it, or all) out of service and waits until it is freed.

        Raises:
            ModelNotFoundError: It isn't loaded.
        """
