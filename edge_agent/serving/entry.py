"""One version of one model in the daemon."""

from __future__ import annotations

from asyncio import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from edge_agent.cache.key import Origin
from edge_agent.description import digest_of_pipeline
from edge_agent.serving import statistics
from edge_agent.serving.service import ModelStatus, State
from edge_agent.types import ModelRef

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription
    from edge_agent.serving.hosts import Host
    from edge_agent.workers.work import Loaded

FIRST_PAUSE_S: Final = 5.0
LAST_PAUSE_S: Final = 300.0


class Entry:
    """One version that is loaded, is to be, or was.

    Attributes:
        ref: Name, version and digest.
        description: Its model.yaml.
        state: READY only while calls are routed to it.
        reason: Why it isn't ready.
        wakes: Whether a call loads it again where it isn't ready.
        sleeps_until: Before that nobody does so, for it failed; on the clock of
            ``time.monotonic``.
        engine: Which engine runs it.
        origin: What the cache calls the engine that answers.
        pipeline_digest: Of its pre- and post-processing.
        host: Where it runs; None while it is nowhere.
        loaded: How it did when it was loaded last; None where it never was.
        last_used: When it was last asked, on the clock of ``time.monotonic``.
        statistics: Its counters.
    """

    def __init__(self, ref: ModelRef, description: ModelDescription) -> None:
        self.ref = ref
        self.description = description
        self.pipeline_digest = digest_of_pipeline(description)
        self.state: State = "LOADING"
        self.reason = "it is being loaded"
        self.wakes = False
        self.sleeps_until = 0.0
        self.engine = ""
        self.origin = Origin("", ())
        self.host: Host | None = None
        self.loaded: Loaded | None = None
        self.last_used = monotonic()
        self.statistics = statistics.fresh(ref)
        self._in_flight = 0
        self._pause_s = self._pause_ended = 0.0
        self._unused = Event()
        self._unused.set()

    @property
    def is_out_of_service(self) -> bool:
        """Whether it failed, and no call loads it again."""
        return self.state == "UNAVAILABLE" and not self.wakes

    @property
    def batches(self) -> bool:
        """Whether rows of several callers run together."""
        return self.loaded is not None and self.loaded.batches

    def be(self, state: State, reason: str = "", *, wakes: bool = False) -> None:
        """Changes its state. What goes out of service is left alone for a while.

        For twice as long each time, until it has done well for long.
        """
        self.state, self.reason, self.wakes = state, reason, wakes
        now = monotonic()
        if state == "READY":
            self.sleeps_until, self._pause_ended = 0.0, min(self._pause_ended, now)
        elif self.is_out_of_service:
            self._pause(now)

    def _pause(self, now: float) -> None:
        if now >= self._pause_ended:  # else this failure was told before
            if now > self._pause_ended + LAST_PAUSE_S:
                self._pause_s = 0.0
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LAST_PAUSE_S)
            self._pause_ended = now + self._pause_s
        self.sleeps_until = self._pause_ended

    @property
    def can_answer(self) -> bool:
        """Whether calls that it has taken are answered: also those before another's turn."""
        return self.host is not None and self.state in ("READY", "UNLOADING")

    @property
    def is_at_hand(self) -> bool:
        """Whether calls are answered, though it may have to be loaded again for them."""
        return self.state == "READY" or (self.wakes and monotonic() >= self.sleeps_until)

    @property
    def is_used(self) -> bool:
        """Whether a call is being answered."""
        return self._in_flight > 0

    def enter(self) -> None:
        """Counts a call that is being answered until it calls `leave`: what is in use stays."""
        self._in_flight += 1
        self._unused.clear()

    def leave(self) -> None:
        """Takes a call off that was answered, or given up."""
        self._in_flight -= 1
        self.last_used = monotonic()
        if not self._in_flight:
            self._unused.set()

    async def unused(self) -> None:
        """Waits until no call is being answered."""
        while self._in_flight:
            await self._unused.wait()

    def status(self, is_live: bool, aliases: tuple[str, ...]) -> ModelStatus:
        """Returns it for the server."""
        return ModelStatus(
            ref=self.ref,
            state="READY" if self.is_at_hand else self.state,
            reason=self.reason,
            is_live=is_live,
            engine=self.engine,
            description=self.description,
            batches=self.batches,
            aliases=aliases,
        )
