"""Makes the set of models so, and keeps trying; the intention is kept on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from edge_agent.errors import AgentError, ModelNotFoundError, ModelNotReadyError
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel, Served, Step, plan
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.serving.entry import Entry
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
        self._is_known = False
        self._failed: set[str] = set()
        self.desired: Desired | None = None

    @property
    def is_reached(self) -> bool:
        """Whether all is served that should be, as far as nobody changed it by hand."""
        return self._is_known and not self._failed

    async def begin(self) -> None:
        """Loads what should be served when the daemon starts; what fails is tried again later."""
        async with self._lock:
            await self._begin()

    async def _begin(self) -> None:
        """Where it can't be read what should be served, nothing is.

        All that is installed may be more than memory holds, and versions that were withdrawn.
        """
        try:
            self.desired = await asyncio.to_thread(self._kept.read)
        except (AgentError, OSError) as error:
            self._log("desired_state_lost", reason=str(error))
            return
        wanted = await self._wanted()
        if wanted is not None:
            await self._reach(wanted)
            self._is_known = True

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
            self.desired, self._is_known = desired, True
            return await self._reach(desired)

    async def forget(self) -> Applied:
        """Goes back to what is served where no desired state was ever set: all that is installed.

        Raises:
            StoreError: It can't be forgotten; nothing was changed.
        """
        async with self._lock:
            await asyncio.to_thread(self._kept.forget)
            self.desired = None
            wanted = await self._wanted()
            self._is_known = wanted is not None
            return Applied(()) if wanted is None else await self._reach(wanted)

    def touched(self, name: str) -> None:
        """Takes in that a model was loaded or unloaded by hand: what failed of it isn't retried."""
        self._failed.discard(name)
        targets = self.desired.targets() if self.desired else {}
        for alias in [one for one, (meant, _) in targets.items() if meant == name]:
            if alias in self._failed:
                with suppress(AgentError):
                    self._point(alias, targets[alias], ())
                self._failed.discard(alias)

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
            async with self._lock:
                await self._try_again()
            for entry in failed:
                await self._life_cycle.revive(entry)

    async def _try_again(self) -> None:
        if not self._is_known:
            await self._begin()
        elif self._failed:
            wanted = await self._wanted()
            if wanted is not None:
                await self._reach(wanted, frozenset(self._failed))

    async def _wanted(self) -> Desired | None:
        """Returns what should be served; None where that can't be read."""
        if self.desired is not None:
            return self.desired
        installed = await self._installed()
        if installed is None:
            return None
        names = list(installed) or self._otherwise
        return Desired(SCHEMA, tuple(DesiredModel(name) for name in names))

    async def _installed(self) -> Mapping[str, tuple[str, str]] | None:
        try:
            return await asyncio.to_thread(self._active)
        except (AgentError, OSError) as error:
            self._log("store_unreadable", reason=str(error))
            return None

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
        installed = await self._installed()
        return plan(desired, served, installed or {}, self._registry.aliases)

    async def _reach(self, desired: Desired, only: Collection[str] | None = None) -> Applied:
        """Takes all steps, or those of some models and aliases: others may be changed by hand."""
        steps = [s for s in await self._plan(desired) if only is None or s.model in only]
        failures: dict[int, str] = {}
        failed: set[str] = set()
        for number, step in enumerate(steps):
            try:
                await self._take(step, desired, failed)
            except (AgentError, SigningError, OSError) as error:
                failures[number] = str(error)
                failed.add(step.model)
                self._failed.add(step.model)
                self._log("model_failed", model=step.model, reason=str(error))
        self._failed &= failed  # but for what was changed by hand meanwhile
        return Applied(tuple(steps), failures)

    async def _take(self, step: Step, desired: Desired, failed: Collection[str]) -> None:
        if step.action == "alias":
            self._point(step.model, desired.targets().get(step.model), failed)
        elif step.action == "unload":
            with suppress(ModelNotFoundError):  # somebody else has done so
                entry = self._registry.find(step.model, step.version)
                self._require_unneeded(entry, desired)
                await self._life_cycle.unload(entry, "it is not desired any more")
        else:
            pinned = {v for n, v in self._registry.aliases.values() if n == step.model and v}
            also = next(one.also for one in desired.models if one.name == step.model)
            is_live, keep = step.action == "load", pinned.union(also)
            await self._life_cycle.load(step.model, step.version, is_live=is_live, keep=keep)

    def _point(
        self, alias: str, target: tuple[str, str | None] | None, failed: Collection[str]
    ) -> None:
        """Gives an alias what it means, or takes it away.

        Raises:
            UnavailableError: What it shall mean isn't ready; it goes on with what it meant.
        """
        aliases = dict(self._registry.aliases)
        if target is None:
            del aliases[alias]
        else:
            if alias in aliases:
                entry = self._registry.find(*target)
                if not entry.is_at_hand or (target[1] is None and target[0] in failed):
                    raise ModelNotReadyError(f"{target[0]} isn't ready: {alias} is what it was")
            aliases[alias] = target
        self._registry.aliases = aliases

    def _require_unneeded(self, entry: Entry, desired: Desired) -> None:
        """Has what is live or pinned stay where what should take its place failed.

        Raises:
            ModelNotReadyError: It does.
        """
        ref = entry.ref
        meant = {*self._registry.aliases.values(), *((one.name, None) for one in desired.models)}
        is_live = self._registry.live(ref.name) is entry
        if (ref.name, ref.version) in meant or (is_live and (ref.name, None) in meant):
            raise ModelNotReadyError(f"{ref.name} {ref.version} stays: another one isn't ready")
