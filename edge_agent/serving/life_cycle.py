"""Loading, switching and freeing versions: a crash at any step leaves the old one or the new one.

A version is verified, tried, loaded beside the one that is live, and answers its golden input
before calls are routed to it; that is one assignment. The old one ends what it has begun, and is
freed then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from edge_agent.errors import (
    AgentError,
    BadInputError,
    EngineUnavailableError,
    GoldenMismatchError,
    MismatchError,
    ModelNotFoundError,
    ModelNotReadyError,
)
from edge_agent.serving import model_files
from edge_agent.serving.entry import Entry
from edge_signing.errors import BundleUnreadable, SigningError

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from edge_agent.description import EngineFile
    from edge_agent.serving.engine_selection import EngineSelection
    from edge_agent.serving.hosts import Host
    from edge_agent.serving.placement import Placement
    from edge_agent.serving.registry import Registry
    from edge_agent.serving.tasks import Tasks
    from edge_agent.telemetry.metrics import Meter
    from edge_agent.types import ModelRef
    from edge_agent.workers.work import ModelFiles


# What the same bytes will fail over again; of anything else a later call may find it healed.
_LASTING: Final = (
    BadInputError,
    EngineUnavailableError,
    GoldenMismatchError,
    MismatchError,
    ModelNotFoundError,
    SigningError,
)
# What says that these bytes aren't to be served any more; anything else says nothing about them.
_UNTRUSTED: Final = (MismatchError, ModelNotFoundError, SigningError)
_WAKE_AGAIN_S: Final = 15.0


class Bundles(Protocol):
    """Where bundles come from. Both verify every byte, and are called in threads."""

    def open(self, reference: str) -> Bundle:
        """Opens ``NAME[@VERSION]`` of an installed bundle."""

    def reopen(self, ref: ModelRef) -> Bundle:
        """Opens exactly these bytes once more."""


class _Locks:
    """A lock for each name, as long as anybody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: str) -> asyncio.Lock:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock


class LifeCycle:
    """What becomes of versions.

    Args:
        registry: Who answers; only the life cycle changes it.
        placement: Where models run.
        bundles: Where they come from.
        selection: Which engine runs which.
        meter: Counts the calls of what is loaded.
        tasks: Where old versions drain.
        relieve: Gives memory back when a model's files went through.
        log: Told what happened: an event, and its facts.
    """

    def __init__(
        self,
        registry: Registry,
        placement: Placement,
        bundles: Bundles,
        selection: EngineSelection,
        meter: Meter,
        tasks: Tasks,
        relieve: Callable[[], None],
        log: Callable[..., None],
    ) -> None:
        self._registry = registry
        self._placement = placement
        self._bundles = bundles
        self._selection = selection
        self._meter = meter
        self._tasks = tasks
        self._relieve = relieve
        self._log = log
        self._loads = _Locks()
        self._locks = _Locks()
        self._waking: dict[Entry, asyncio.Task[None]] = {}
        self._ending: dict[str, tuple[Entry, asyncio.Task[None]]] = {}
        self._trust = 0  # how often it may have changed
        self._parts: dict[str, tuple[ModelRef, str]] = {}

    async def load(
        self, name: str, version: str | None, *, is_live: bool = True, keep: Collection[str] = ()
    ) -> Entry:
        """Loads a version; for errors see `Service.load`.

        Args:
            name: Bundle name.
            version: None means the store's active one.
            is_live: Whether calls without a version go to it from then on.
            keep: Versions that stay loaded beside it, the one that was live among them.
        """
        async with self._loads[name]:
            trust = self._trust
            bundle = await self._open(name, version)
            with closing(bundle), self._choosing(bundle) as choosing:
                if self._registry.live(name) is not None:
                    # What is live can rest, wake and move meanwhile, however long a trial takes.
                    await asyncio.wait({choosing})
                return await self._switch(bundle, choosing, trust, is_live, keep)

    async def _switch(
        self,
        bundle: Bundle,
        choosing: Awaitable[EngineFile],
        trust: int,
        is_live: bool,
        keep: Collection[str],
    ) -> Entry:
        async with self._locks[bundle.ref.name]:
            entry = await self._known(bundle.ref.digest)
            entry = entry or Entry(bundle.ref, bundle.description)
            self._registry.announce(entry, is_live)
            await self._start(entry, choosing, trust)
            put = self._registry.make_live if is_live else self._registry.put
            self._tell("model_live" if is_live else "model_ready", entry)
            for old in put(entry):
                if old.ref.version == entry.ref.version or old.ref.version not in keep:
                    self._end_soon(old, "another version took its place")
            return entry

    async def check(self, name: str, version: str | None) -> None:
        """Verifies a version as a load would begin to; for errors see `Service.load`."""
        (await self._open(name, version)).close()

    async def unload(self, entry: Entry, reason: str = "it was unloaded") -> None:
        """Takes a version out of service and waits until it is freed.

        Raises:
            ModelNotFoundError: Somebody else has done so meanwhile.
        """
        async with self._locks[entry.ref.name]:
            if entry not in self._registry:
                raise ModelNotFoundError(f"{entry.ref.name} {entry.ref.version} isn't loaded")
            await asyncio.wait({self._end_soon(entry, reason)})

    async def rest(self, entry: Entry, reason: str) -> None:
        """Frees a version that nobody uses; the next call for it loads it again."""
        async with self._locks[entry.ref.name]:
            if entry.state == "READY" and not entry.is_used:
                entry.be("UNAVAILABLE", reason, wakes=True)
                await self._free(entry)
                self._tell("model_rests", entry)

    async def fail(self, entry: Entry, reason: str, *, wakes: bool = False) -> None:
        """Takes a version out of service at once; calls that wait for it fail, or wake it."""
        host = self._cut_off(entry, reason, wakes)
        if host is not None:
            await self._drop(entry, host)

    async def wake(self, entry: Entry, timeout_s: float | None = None) -> None:
        """Has a version loaded again that isn't ready; who asks meanwhile waits for the same load.

        Args:
            entry: Which.
            timeout_s: How long to wait, in seconds; the load goes on beyond that.

        Raises:
            ModelNotReadyError: It isn't ready by then, or can't be loaded.
        """
        if monotonic() < entry.sleeps_until:
            raise not_ready(entry)
        task = self._waking.get(entry)
        if task is None:
            task = self._waking[entry] = self._tasks.create_task(self._wake(entry, is_broken=False))
        await asyncio.wait({task}, timeout=timeout_s)
        if not entry.can_answer:
            raise not_ready(entry)

    def revive(self, entry: Entry) -> None:
        """Begins to load a version again that broke, where it has been left alone for long enough.

        What comes of it the entry says; it isn't ready meanwhile.
        """
        is_due = entry.is_out_of_service and monotonic() >= entry.sleeps_until
        if is_due and entry not in self._waking:
            task = self._tasks.create_task(self._wake(entry, is_broken=True))
            self._waking[entry] = task

    async def recheck(self) -> bool:
        """Ends what can't be trusted any more, after a change of the keyring.

        What is being loaded meanwhile is verified once more before it answers. What can't be read
        now goes on as it is: nothing speaks against the bytes that are loaded.

        Returns:
            Whether something isn't trusted any more.
        """
        self._trust += 1
        is_revoked = False
        for entry in list(self._registry):
            try:
                await self._verify(entry)
            except (AgentError, SigningError, OSError) as error:
                if not isinstance(error, _UNTRUSTED) or isinstance(error, BundleUnreadable):
                    self._tell("model_not_rechecked", entry, str(error))
                    continue
                is_revoked = is_revoked or isinstance(error, SigningError)
                if entry.state == "UNAVAILABLE" and entry.wakes:
                    entry.be("UNAVAILABLE", str(error), wakes=False)
                host = self._cut_off(entry, str(error), wakes=False)
                if host is not None:  # others are not to wait until it is freed
                    self._tasks.create_task(self._drop(entry, host))
        return is_revoked

    async def files(self, digest: str) -> ModelFiles:
        """Verifies a bundle again for a worker; implements `workers.work.OpenModel`.

        Raises:
            ModelNotFoundError: It isn't served any more.
            AgentError: It can't be opened.
            edge_signing.errors.SigningError: It can't be trusted any more.
        """
        if digest not in self._parts:
            raise ModelNotFoundError(f"nothing with the digest {digest} is served")
        ref, engine = self._parts[digest]
        return await asyncio.to_thread(self._seal, ref, engine)

    def _seal(self, ref: ModelRef, engine: str) -> ModelFiles:
        with closing(self._bundles.reopen(ref)) as bundle:
            part = bundle.description.engine(engine)
            assert part is not None  # noqa: S101 - the same bytes had it when it was placed
            return model_files.seal(bundle, part)

    @contextmanager
    def _choosing(self, bundle: Bundle) -> Iterator[asyncio.Task[EngineFile]]:
        """Begins to choose an engine, and ends that with the block."""
        choosing = asyncio.create_task(self._selection.choose(bundle))
        try:
            yield choosing
        finally:
            choosing.cancel()
            if choosing.done() and not choosing.cancelled():
                choosing.exception()  # which nobody needs where the version was ready already

    async def _open(self, name: str, version: str | None) -> Bundle:
        reference = f"{name}@{version}" if version else name
        return await asyncio.to_thread(self._bundles.open, reference)

    async def _verify(self, entry: Entry) -> None:
        (await asyncio.to_thread(self._bundles.reopen, entry.ref)).close()

    def _cut_off(self, entry: Entry, reason: str, wakes: bool) -> Host | None:
        """Has a version answer nothing from now on, whoever loads another one meanwhile.

        Returns:
            What has to be freed of it.
        """
        if entry.state == "READY":
            entry.be("UNAVAILABLE", reason, wakes=wakes)
            self._tell("model_failed", entry)
        return self._placement.cut_off(entry) if entry.state != "LOADING" else None

    async def _drop(self, entry: Entry, host: Host) -> None:
        digest = entry.ref.digest
        async with self._locks[entry.ref.name]:
            now = self._registry.loaded(digest)
            if now is None or now.host is not host:  # else it was placed there anew
                await self._placement.drop(digest, host)

    async def _start(self, entry: Entry, choosing: Awaitable[EngineFile], trust: int) -> None:
        """Makes a version ready, if it isn't."""
        if entry.state == "READY":
            return
        entry.be("LOADING", "it is being loaded", wakes=entry.wakes)
        engine = entry.engine
        try:
            part = await choosing
            self._parts[entry.ref.digest] = (entry.ref, part.engine)
            await self._placement.place(entry, part.engine)
            while trust != self._trust:  # the keyring isn't that which its bytes were held to
                trust = self._trust
                await self._verify(entry)
            entry.be("READY")
            if engine != part.engine:  # what only rested goes on with its counters
                self._meter.remember(entry.ref.name, entry.ref.version, part.engine)
            entry.last_used = monotonic()
            self._relieve()
        except BaseException as error:
            self._parts.pop(entry.ref.digest, None)
            wakes = entry.wakes and not isinstance(error, _LASTING)
            entry.be("UNAVAILABLE", str(error) or type(error).__name__, wakes=wakes)
            host = self._placement.cut_off(entry)
            if host is not None:
                await self._placement.drop(entry.ref.digest, host)
            raise

    async def _wake(self, entry: Entry, *, is_broken: bool) -> None:
        """Loads a version again, unless it isn't any more what it was: resting, or broken.

        Never raises: who waits looks at the entry.
        """
        async with self._locks[entry.ref.name]:
            try:
                is_due = entry.is_out_of_service if is_broken else entry.wakes
                if is_due and entry in self._registry:
                    await self._start_again(entry)
                    if is_broken:
                        is_live = self._registry.live(entry.ref.name) is entry
                        self._tell("model_live" if is_live else "model_ready", entry)
            except (AgentError, SigningError, OSError) as error:
                wakes = not is_broken and not isinstance(error, _LASTING)
                entry.be("UNAVAILABLE", str(error), wakes=wakes)
                if wakes:
                    entry.sleeps_until = monotonic() + _WAKE_AGAIN_S
                self._tell("model_failed", entry)
            finally:
                del self._waking[entry]

    async def _start_again(self, entry: Entry) -> None:
        trust = self._trust
        bundle = await asyncio.to_thread(self._bundles.reopen, entry.ref)
        with closing(bundle), self._choosing(bundle) as choosing:
            await self._start(entry, choosing, trust)

    async def _known(self, digest: str) -> Entry | None:
        """Returns the entry of a bundle; one that only drains yet goes on instead of ending."""
        entry, ending = self._ending.get(digest, (None, None))
        if entry is not None and entry.can_answer:
            entry.be("READY")
            return entry
        if ending is not None:
            await asyncio.wait({ending})
        return self._registry.loaded(digest)

    def _end_soon(self, entry: Entry, reason: str) -> asyncio.Task[None]:
        entry.be("UNLOADING", reason)
        _, ending = self._ending.get(entry.ref.digest, (None, None))
        if ending is None:
            ending = self._tasks.create_task(self._end(entry))
            self._ending[entry.ref.digest] = entry, ending
        return ending

    async def _end(self, entry: Entry) -> None:
        try:
            if entry.host is not None:  # else who waits for it waits for nothing
                await entry.unused()
            if entry.state == "UNLOADING":  # else it was loaded again meanwhile
                await self._leave(entry)
        finally:
            del self._ending[entry.ref.digest]

    async def _leave(self, entry: Entry) -> None:
        try:
            await self._free(entry)
        finally:
            self._registry.remove(entry)
            if not self._registry.versions(entry.ref.name).get(entry.ref.version):
                self._meter.forget(entry.ref.name, entry.ref.version)
            self._tell("model_unloaded", entry)

    def _tell(self, event: str, entry: Entry, reason: str | None = None) -> None:
        ref = entry.ref
        self._log(event, model=ref.name, version=ref.version, reason=reason or entry.reason)

    async def _free(self, entry: Entry) -> None:
        await self._placement.free(entry)
        self._parts.pop(entry.ref.digest, None)


def not_ready(entry: Entry) -> ModelNotReadyError:
    """Returns the error for a version that isn't ready."""
    return ModelNotReadyError(f"{entry.ref.name} {entry.ref.version} is not ready: {entry.reason}")
