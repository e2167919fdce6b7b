"""Makes the set of models so, and keeps trying; the intention is kept on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from msgspec import Struct

from edge_agent.errors import AgentError, ModelNotFoundError, ModelNotReadyError
from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel, Served, Step, Stored, plan
from edge_agent.serving.registry import Unmet
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.serving.entry import Entry
    from edge_agent.serving.life_cycle import LifeCycle
    from edge_agent.serving.registry import Registry
    from edge_agent.serving.service import State

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


class _Aim(NamedTuple):
    """What should be served, what is installed, and which versions there were."""

    desired: Desired
    installed: Mapping[str, Stored] | None
    entries: Sequence[Entry]


class Reconciler:
    """Brings what is served to what should be.

    Args:
        registry: What is served.
        life_cycle: What changes it.
        kept: Where the desired state is kept.
        stored: What is installed, by name; called in a thread.
        otherwise: What is served where nothing is installed.
        log: Told what happened: an event, and its facts.
    """

    def __init__(
        self,
        registry: Registry,
        life_cycle: LifeCycle,
        kept: Kept,
        stored: Callable[[], Mapping[str, Stored]],
        otherwise: Sequence[str],
        log: Callable[..., None],
    ) -> None:
        self._registry = registry
        self._life_cycle = life_cycle
        self._kept = kept
        self._stored = stored
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
            is_dry_run: Whether only to say what it takes, and what of it would fail for the bundle.

        Raises:
            StoreError: It can't be kept; nothing was changed.
        """
        async with self._lock:
            if is_dry_run:
                return await self._check(self._plan(desired, await self._installed()))
            await asyncio.to_thread(self._kept.write, desired)
            self.desired, self._is_known = desired, True
            return await self._reach(desired)

    async def forget(self) -> Applied:
        """Goes back to what is served where no desired state was ever set: all that is installed.

        Where none is set, it makes that so as the store is now.

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
        self._registry.forget_unmet({name})
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
            if self.is_reached:
                wait_s = max(_FIRST_RETRY_S, wait_s / 2)
                continue
            wait_s = min(wait_s * 2, _LAST_RETRY_S)
            async with self._lock:
                await self._try_again()

    async def _try_again(self) -> None:
        if not self._is_known:
            await self._begin()
        elif self._failed:
            wanted = await self._wanted()
            if wanted is not None:
                await self._reach(wanted, frozenset(self._failed))

    async def _wanted(self) -> Desired | None:
        """Returns what a start would serve; None where that can't be read."""
        if self.desired is not None:
            return self.desired
        installed = await self._installed()
        if installed is None:
            return None
        names = list(installed) or self._otherwise
        return Desired(SCHEMA, tuple(DesiredModel(name) for name in names))

    async def _installed(self) -> Mapping[str, Stored] | None:
        try:
            return await asyncio.to_thread(self._stored)
        except (AgentError, OSError) as error:
            self._log("store_unreadable", reason=str(error))
            return None

    def _plan(self, desired: Desired, installed: Mapping[str, Stored] | None) -> list[Step]:
        names = {entry.ref.name for entry in self._registry}
        served = {name: self._served(name, installed) for name in names}
        active = {name: one.active for name, one in (installed or {}).items()}
        return plan(desired, served, active, self._registry.aliases)

    def _served(self, name: str, installed: Mapping[str, Stored] | None) -> Served:
        versions = self._registry.versions(name)
        known = {v: entry for v, entry in versions.items() if entry.state != "UNLOADING"}
        gone = {v for v, entry in known.items() if self._is_gone(entry, installed)}
        there = {v: e for v, e in known.items() if e.is_at_hand and v not in gone}
        stored = (installed or {}).get(name)
        ready = {v for v, e in there.items() if not stored or stored.digest(v) == e.ref.digest}
        live = self._registry.live(name)
        is_there = live is not None and live in there.values()
        mine = (live.ref.version, live.ref.digest) if live and is_there else None
        return Served(mine, frozenset(ready), frozenset(known), frozenset(gone))

    def _is_gone(self, entry: Entry, installed: Mapping[str, Stored] | None) -> bool:
        """Whether the bytes of a version have left the store, as far as it can be read."""
        if installed is None:
            return False
        stored = installed.get(entry.ref.name)
        if stored is None:
            return entry.ref.name not in self._otherwise  # these need no store
        return not stored.has(entry.ref.digest)

    async def _check(self, steps: Sequence[Step]) -> Applied:
        """Says which steps would fail for their bundle."""
        failures = {}
        for number, step in enumerate(steps):
            if step.action in ("load", "add"):
                try:
                    await self._life_cycle.check(step.model, step.version)
                except (AgentError, SigningError, OSError) as error:
                    failures[number] = str(error)
        return Applied(tuple(steps), failures)

    async def _reach(self, desired: Desired, only: Collection[str] | None = None) -> Applied:
        """Takes all steps, or those of some models and aliases: others may be changed by hand."""
        installed = await self._installed()
        steps = [s for s in self._plan(desired, installed) if only is None or s.model in only]
        failures: dict[int, str] = {}
        failed: set[str] = set()
        aim = _Aim(desired, installed, list(self._registry))
        # What is tried again has failed until it succeeds.
        before = {} if only is None else dict(self._registry.unmet)
        self._registry.forget_unmet(only)
        for step in steps:
            if (key := _loaded_by(step, installed)) is not None:
                self._registry.unmet[key] = before.get(key) or _unmet(step, "LOADING")
        for number, step in enumerate(steps):
            key = _loaded_by(step, installed)
            try:
                await self._take(step, aim, failed)
                if key is not None:
                    self._registry.unmet.pop(key, None)
            except (AgentError, SigningError, OSError) as error:
                failures[number] = str(error)
                failed.add(step.model)
                self._failed.add(step.model)
                if key is not None:
                    self._registry.unmet[key] = _unmet(step, "UNAVAILABLE", str(error))
                facts = {"model": step.model, "version": step.version or "", "reason": str(error)}
                self._log("model_failed", **facts)
        self._failed &= failed  # but for what was changed by hand meanwhile
        return Applied(tuple(steps), failures)

    async def _take(self, step: Step, aim: _Aim, failed: Collection[str]) -> None:
        desired = aim.desired
        if step.action == "alias":
            self._point(step.model, desired.targets().get(step.model), failed)
        elif step.action == "unload":
            entry = self._registry.versions(step.model).get(step.version or "")
            if entry is None or entry not in aim.entries:
                return  # it is gone, or other bytes took its place
            reason = "it was removed from the store"
            if not self._is_gone(entry, aim.installed):
                self._require_unneeded(entry, desired)
                reason = "it is not desired any more"
            with suppress(ModelNotFoundError):  # somebody else does so
                await self._life_cycle.unload(entry, reason)
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
        is_live = self._registry.live(ref.name) is entry and entry.loaded is not None
        if (ref.name, ref.version) in meant or (is_live and (ref.name, None) in meant):
            raise ModelNotReadyError(f"{ref.name} {ref.version} stays: another one isn't ready")


def _loaded_by(step: Step, installed: Mapping[str, Stored] | None) -> tuple[str, str] | None:
    """Returns name and version of what a step loads; None where it loads nothing."""
    if step.action not in ("load", "add"):
        return None
    stored = (installed or {}).get(step.model)
    return step.model, step.version or (stored.active[0] if stored else "")


def _unmet(step: Step, state: State, reason: str = "it is being loaded") -> Unmet:
    return Unmet(state, reason, is_live=step.action == "load")
