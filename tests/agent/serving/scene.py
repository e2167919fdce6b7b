"""The rooms of `serving` around workers that only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, cast

from msgspec import structs

from edge_agent.bundles import Bundle
from edge_agent.cache.cache import ResultCache
from edge_agent.cache.key import Origin
from edge_agent.calls import Answer, Call, InputTensor, Priority, Query, Reply
from edge_agent.description import EngineFile, ModelDescription, Raw, TensorSpec
from edge_agent.errors import AgentError, ModelNotFoundError
from edge_agent.scheduler.limits import limits_of
from edge_agent.scheduler.scheduler import Scheduler
from edge_agent.serve_config import CacheConfig, ServeConfig
from edge_agent.serving.answering import Answering
from edge_agent.serving.engine_selection import EngineSelection
from edge_agent.serving.entry import Entry
from edge_agent.serving.faults import Faults
from edge_agent.serving.hosts import Host, HostKind, Hosts
from edge_agent.serving.life_cycle import LifeCycle
from edge_agent.serving.placement import Placement
from edge_agent.serving.registry import Registry
from edge_agent.telemetry.metrics import Meter
from edge_agent.types import ModelRef, ScoredLabel
from edge_agent.workers.events import PoolStatus, WorkerStatus
from edge_agent.workers.pool import Pool
from edge_agent.workers.work import Batch, Loaded

PATIENCE_S = 20.0


def describe(name: str, version: str) -> ModelDescription:
    return ModelDescription(
        schema="edge-agent/model/v1",
        name=name,
        version=version,
        task="test",
        inputs=(TensorSpec(name="x", dtype="uint8", shape=(1, 4)),),
        outputs=(TensorSpec(name="y", dtype="uint8", shape=(1, 4)),),
        engines=(EngineFile(engine="onnx", file="weights/model.onnx"),),
        postprocess=Raw(),
    )


def entry(name: str = "acme/a", version: str = "1.0.0", digest: str = "") -> Entry:
    ref = ModelRef(name, version, digest or f"sha256:{name}@{version}")
    return Entry(ref, describe(name, version))


class FakeBundle:
    """As much of a bundle as is looked at before a worker gets its files."""

    def __init__(self, ref: ModelRef) -> None:
        self.ref = ref
        self.description = describe(ref.name, ref.version)

    def close(self) -> None:
        pass


class FakeBundles:
    """A store.

    Attributes:
        refs: What is installed.
        active: Version that a bare name means.
        problems: What opening a bundle raises, by its digest.
    """

    def __init__(self) -> None:
        self.refs: dict[str, ModelRef] = {}
        self.active: dict[str, str] = {}
        self.problems: dict[str, Exception] = {}
        self.opened: list[str] = []

    def install(self, name: str, version: str, bytes_: str = "") -> str:
        ref = ModelRef(name, version, f"sha256:{name}@{version}{bytes_}")
        self.refs[f"{name}@{version}"] = ref
        self.active[name] = version
        return ref.digest

    def remove(self, name: str, version: str) -> None:
        del self.refs[f"{name}@{version}"]
        left = [one.version for one in self.refs.values() if one.name == name]
        self.active = {one: v for one, v in self.active.items() if one != name}
        if left:
            self.active[name] = left[-1]

    def open(self, reference: str) -> Bundle:
        name, _, version = reference.partition("@")
        ref = self.refs.get(f"{name}@{version or self.active.get(name, '')}")
        if ref is None:
            raise ModelNotFoundError(f"no model {reference!r} is installed")
        return self.reopen(ref)

    def reopen(self, ref: ModelRef) -> Bundle:
        self.opened.append(ref.digest)
        if ref.digest in self.problems:
            raise self.problems[ref.digest]
        return cast("Bundle", FakeBundle(ref))


class FakePool:
    """One worker: it runs batches when its gate is open, and says which model ran.

    Attributes:
        refuses: What loading a model raises, by its digest.
        loading: Loads wait for it.
        running: Runs wait for it.
        batches: What it has begun to run.
        failure: What comes of it; None for an answer.
        crash: Told of it, with the model.
        can_batch: Whether rows of several callers run together.
    """

    def __init__(self, scheduler: Scheduler, kind: HostKind, refuses: dict[str, Exception]) -> None:
        self.kind = kind
        self.models: set[str] = set()
        self.refuses = refuses
        self.unload_error: Exception | None = None
        self.failure: AgentError | None = None
        self.crash: Callable[[str], None] = lambda digest: None
        self.can_batch = False
        self.loading, self.running = asyncio.Event(), asyncio.Event()
        self.loading.set()
        self.running.set()
        self.loads: list[str] = []
        self.batches: list[Batch] = []
        self.worker = WorkerStatus(1, 0, monotonic())
        self.is_stopped = False
        self._scheduler = scheduler
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        work = asyncio.create_task(self._work())
        await self._stopping.wait()
        work.cancel()
        await asyncio.wait([work])
        self.is_stopped = True

    async def _work(self) -> None:
        while True:
            batch = await self._scheduler.next_batch(self.models, frozenset(Priority))
            self.batches.append(batch)
            await self.running.wait()
            if self.failure:
                self.crash(batch.model)
            batch.done([self.failure or answer(batch.model) for _ in batch.queries])

    async def load(self, digest: str) -> Loaded:
        self.loads.append(digest)
        await self.loading.wait()
        if digest in self.refuses:
            raise self.refuses[digest]
        self.models.add(digest)
        self._scheduler.models_changed()
        return Loaded(1.0, self.can_batch, "fake 1")

    async def unload(self, digest: str) -> None:
        self.models.discard(digest)
        if self.unload_error is not None:
            raise self.unload_error

    async def stop(self, deadline_s: float) -> None:
        self._stopping.set()

    def status(self) -> PoolStatus:
        return PoolStatus((self.worker,), {})


def answer(digest: str) -> Answer:
    return Answer(labels=((ScoredLabel(0, digest, 1.0),),))


def who(reply: Reply) -> str:
    """Digest of the model that ran."""
    return reply.answer.labels[0][0].label


class FakeSelection:
    """Chooses the first engine, unless it has a problem with a bundle."""

    def __init__(self) -> None:
        self.problems: dict[str, Exception] = {}
        self.trials: dict[str, asyncio.Event] = {}
        self.tried: list[str] = []

    async def choose(self, bundle: Bundle) -> EngineFile:
        self.tried.append(bundle.ref.digest)
        await asyncio.sleep(0)
        if bundle.ref.digest in self.trials:
            await self.trials[bundle.ref.digest].wait()
        if bundle.ref.digest in self.problems:
            raise self.problems[bundle.ref.digest]
        return bundle.description.engines[0]


class Scene:
    """Everything of `serving` that answers, in one event loop."""

    def __init__(self, tasks: asyncio.TaskGroup, folder: Path, cache_mib: int) -> None:
        self.config = ServeConfig()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.pools: list[FakePool] = []
        self.refuses: dict[str, Exception] = {}
        self.tasks, self.meter = tasks, Meter()
        self.registry, self.bundles, self.selection = Registry(), FakeBundles(), FakeSelection()
        self.hosts = Hosts(self._make, tasks)
        origins = {"onnx": Origin("onnx", ("1",))}
        self.placement = Placement(self.hosts, origins, lambda: self.config)
        self.life_cycle = LifeCycle(
            self.registry,
            self.placement,
            self.bundles,
            cast("EngineSelection", self.selection),
            self.meter,
            tasks,
            lambda: None,
            self.log,
        )
        self.faults = Faults(self.registry, self.life_cycle, self.placement, tasks, self.log)
        cache = ResultCache(folder / "cache.sqlite3", CacheConfig(mib=cache_mib))
        self.answering = Answering(
            self.registry, self.life_cycle, cache, self.meter, lambda: self.config
        )

    def _make(self, kind: HostKind) -> Host:
        scheduler = Scheduler(limits_of(self.config))
        pool = FakePool(scheduler, kind, self.refuses)
        self.pools.append(pool)
        return Host(kind, scheduler, [cast("Pool", pool)])

    def log(self, event: str, **facts: Any) -> None:
        self.events.append((event, facts))

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.events if name == event]

    async def serve(self, version: str = "1.0.0", name: str = "acme/a", bytes_: str = "") -> Entry:
        """Installs a version and loads it."""
        self.bundles.install(name, version, bytes_)
        return await self.life_cycle.load(name, version)

    async def ask(self, value: int = 0, name: str = "acme/a", **changed: Any) -> Reply:
        return await self.answering.infer(call(value, name, **changed))

    def asking(self, value: int = 0, name: str = "acme/a", **changed: Any) -> asyncio.Task[Reply]:
        return asyncio.create_task(self.ask(value, name, **changed))

    def waiting(self) -> int:
        """How many calls wait in queues."""
        return sum(depth for host in self.hosts for _, _, depth in host.scheduler.waiting())

    async def running(self) -> FakePool:
        """Closes the gate of the only pool."""
        (pool,) = self.pools
        pool.running.clear()
        return pool


def call(value: int = 0, name: str = "acme/a", **changed: Any) -> Call:
    query = Query("labels", (InputTensor("x", "uint8", (1, 4), value.to_bytes(4, "little")),))
    return structs.replace(Call(name, query, "t", deadline=monotonic() + PATIENCE_S), **changed)


async def until(what: Callable[[], object]) -> None:
    """Waits for something that other tasks bring about."""
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def scene(folder: Path, cache_mib: int = 0) -> AsyncIterator[Scene]:
    """Ends with nothing left running; a task that raised fails the test."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        one = Scene(tasks, folder, cache_mib)
        try:
            yield one
        finally:
            for pool in one.pools:
                pool.running.set()
                pool.loading.set()
            await one.hosts.stop(0.0)
    assert all(pool.is_stopped for pool in one.pools)


def play(folder: Path, act: Callable[[Scene], Coroutine[Any, Any, None]], mib: int = 0) -> None:
    """Runs a test in a scene."""

    async def main() -> None:
        async with scene(folder, mib) as one:
            await act(one)

    asyncio.run(main())
