"""Makes the set of models so, and keeps trying; the intention is kept on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from edge_agent.errors import AgentError, ModelNotFoundError
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel, Served, Step, plan
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.registry import Registry

_FIRST_RETRY_S: Final = 5.0
_LAST_RETRY_S: Final = 300.0


class Kept(Protocol):
    """Where the desired state outlives the daemon. Both are called in threads."""

    def read(self) -> Desired | None:
        """Returns it, None where none was ever set."""

    def write(self, desired: Desired) -> None:
        """Keeps it durably."""

    def forget(self) -> None:
        """Forgets it."""


class Applied(Struct, frozen=True):
    """What came of a desired state.

    Attributes:
        steps: What was to do.
        failures: Errors in words, by the index of the step.
    """

    steps: tuple[Step, ...]
    failures: dict[int, str] = {}


class Reconciler:
    """Brings what is served to what should be.

    Args:
        registry: What is served.
        life_cycle: What changes it.
        kept: Where the desired state is kept.
        active: Version and digest of the active bundle of each installed name; called in a thread.
        otherwise: What is served where nothing is installed.
        log: Told what happened: an event, and its facts.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        kept: Kept,
        active: Callable[[], Mapping[str, tuple[str, str]]],
        otherwise: Sequence[str],
        log: Callable[..., None],
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._kept = kept
        self._active = active
        self._otherwise = otherwise
        self._log = log
        self._lock = asyncio.Lock()
        self.desired: Desired | None = None
        self.is_reached = False

    async def begin(self) -> None:
        """Loads what should be served when the daemon starts; what fails is tried again later."""
        async with self._lock:
            try:
                self.desired = await asyncio.to_thread(self._kept.read)
            except (AgentError, OSError) as error:
                self._log("desired_state_lost", reason=str(error))
            await self._reach(await self._wanted())

    async def apply(self, desired: Desired, *, is_dry_run: bool = False) -> Applied:
        """Makes the set of models so; doing it twice does nothing more.

        Args:
            desired: What should be.
            is_dry_run: Whether only to say what it takes.

        Raises:
            StoreError: It can't be kept; nothing was changed.
        """
        async with self._lock:
            if is_dry_run:
                return Applied(tuple(await self._plan(desired)))
            await asyncio.to_thread(self._kept.write, desired)
            self.desired = desired
            return await self._reach(desired)

    async def forget(self) -> Applied:
        """Goes back to what is served where no desired state was ever set: all that is installed.

        Raises:
            StoreError: It can't be forgotten; nothing was changed.
        """
        async with self._lock:
            await asyncio.to_thread(self._kept.forget)
            self.desired = None
            return await self._reach(await self._wanted())

    async def run(self) -> None:
        """Tries again what failed, less and less often, for ever."""
        wait_s = _FIRST_RETRY_S
        while True:
            await asyncio.sleep(wait_s)
            # What never was loaded is no model that broke: its load is a step of its own.
            failed = [one for one in self._registry if one.is_out_of_service and one.loaded]
            if self.is_reached and not failed:
                wait_s = max(_FIRST_RETRY_S, wait_s / 2)
                continue
            wait_s = min(wait_s * 2, _LAST_RETRY_S)
            if not self.is_reached:
                async with self._lock:
                    await self._reach(await self._wanted())
            for entry in failed:
                await self._life_cycle.revive(entry)

    async def _wanted(self) -> Desired:
        if self.desired is not None:
            return self.desired
        names = list(await self._installed()) or self._otherwise
        return Desired(SCHEMA, tuple(DesiredModel(name) for name in names))

    async def _installed(self) -> Mapping[str, tuple[str, str]]:
        try:
            return await asyncio.to_thread(self._active)
        except (AgentError, OSError) as error:
            self._log("store_unreadable", reason=str(error))
            return {}

    async def _plan(self, desired: Desired) -> list[Step]:
        served = {}
        for name in {entry.ref.name for entry in self._registry}:
            live = self._registry.live(name)
            versions = self._registry.versions(name)
            known = {v for v, e in versions.items() if e.state != "UNLOADING"}
            ready = {v for v in known if versions[v].is_at_hand}
            mine = None
            if live is not None and live.ref.version in ready:
                mine = (live.ref.version, live.ref.digest)
            served[name] = Served(mine, frozenset(ready), frozenset(known))
        return plan(desired, served, await self._installed(), self._registry.aliases)

    async def _reach(self, desired: Desired) -> Applied:
        steps = await self._plan(desired)
        also = {model.name: model.also for model in desired.models}
        failures: dict[int, str] = {}
        for number, step in enumerate(steps):
            try:
                await self._take(step, also.get(step.model, ()))
            except (AgentError, SigningError, OSError) as error:
                failures[number] = str(error)
                self._log("model_failed", model=step.model, reason=str(error))
        self._registry.aliases = desired.targets()
        self.is_reached = not failures
        return Applied(tuple(steps), failures)

    async def _take(self, step: Step, also: Sequence[str]) -> None:
        if step.action == "unload":
            with suppress(ModelNotFoundError):  # somebody else has done so
                entry = self._registry.find(step.model, step.version)
                await self._life_cycle.unload(entry, "it is not desired any more")
        elif step.action != "alias":
            is_live = step.action == "load"
            await self._life_cycle.load(step.model, step.version, is_live=is_live, keep=also)
