"""Builds the daemon's rooms and hands each what it needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from edge_agent.backends.registry import BACKENDS
from edge_agent.cache import origin
from edge_agent.cache.cache import ResultCache
from edge_agent.daemon.figures import Figures
from edge_agent.daemon.guard import Guarded
from edge_agent.daemon.kept_state import DesiredFile
from edge_agent.daemon.memory import sample
from edge_agent.daemon.pools import make_host, worker_settings
from edge_agent.engine_choice import ChoiceMemory
from edge_agent.memory_allocator import give_back
from edge_agent.references import DEMO_NAME
from edge_agent.serving.answering import Answering
from edge_agent.serving.desired import Stored
from edge_agent.serving.engine_selection import EngineSelection
from edge_agent.serving.faults import Faults
from edge_agent.serving.hosts import Host, HostKind, Hosts
from edge_agent.serving.life_cycle import LifeCycle
from edge_agent.serving.models import Models
from edge_agent.serving.placement import Placement
from edge_agent.serving.pressure import Unloading
from edge_agent.serving.reconciler import Reconciler
from edge_agent.serving.registry import Registry
from edge_agent.serving.revival import Revival
from edge_agent.telemetry.gauges import Gauges
from edge_agent.telemetry.metrics import Meter, registry, render
from edge_agent.telemetry.refusals import Refusals
from edge_agent.workers.trial import trial
from edge_profiles.detect import detect

if TYPE_CHECKING:
    from asyncio import TaskGroup

    from prometheus_client import CollectorRegistry

    from edge_agent.cache.key import Origin
    from edge_agent.daemon.settings import Settings
    from edge_agent.workers.work import Loaded, ModelFiles

_TRIAL_S: Final = 120.0
_LOG: Final = logging.getLogger("edge_agent.serving")
_USUAL: Final = ("worker_recycled", "model_ready", "model_live", "model_unloaded", "model_rests")


class Rooms(Struct, frozen=True):
    """The daemon's rooms.

    Attributes:
        models: What the server asks.
        answering: The way of a call.
        registry: Who answers.
        placement: On which workers models run.
        life_cycle: What loads and unloads.
        reconciler: What should be served.
        revival: What tries broken models again.
        hosts: Where models run.
        cache: Answers that were given before.
        unloading: What puts models to rest.
        metrics: What is asked for metrics.
        refusals: Counts requests that never come to a model.
    """

    models: Models
    answering: Answering
    registry: Registry
    placement: Placement
    life_cycle: LifeCycle
    reconciler: Reconciler
    revival: Revival
    hosts: Hosts
    cache: ResultCache
    unloading: Unloading
    metrics: CollectorRegistry
    refusals: Refusals

    def render(self) -> bytes:
        """Returns all metrics as text."""
        return render(self.metrics)

    def served(self) -> str:
        """Returns in a line what is served."""
        names = [one.ref.name for one in self.models.models() if one.state == "READY"]
        return ", ".join(dict.fromkeys(names)) or "nothing"


def build(settings: Settings, tasks: TaskGroup) -> Rooms:
    """Builds the rooms; nothing runs yet.

    Args:
        settings: The configuration in force.
        tasks: Where workers and drains run.
    """
    config, profile = settings.config, settings.agent.profile
    table, meter, refusals = Registry(), Meter(), Refusals()

    def make(kind: HostKind) -> Host:
        return make_host(kind, settings.config, profile, life_cycle.files, faults)

    hosts = Hosts(make, tasks)
    placement = Placement(hosts, _origins(), lambda: settings.serve)
    selection = _selection(settings)
    guarded = Guarded(tasks)
    life_cycle = LifeCycle(table, placement, settings, selection, meter, guarded, give_back, _log)
    faults = Faults(table, life_cycle, placement, guarded, _log)
    cache = ResultCache(config.cache_file, settings.cache)
    answering = Answering(table, life_cycle, cache, meter, lambda: settings.serve)
    reconciler = Reconciler(
        table,
        life_cycle,
        DesiredFile(config.state_dir),
        lambda: _stored(settings),
        (DEMO_NAME,),
        _log,
    )
    figures = Figures(table, hosts, cache)
    return Rooms(
        Models(table, life_cycle, answering, reconciler),
        answering,
        table,
        placement,
        life_cycle,
        reconciler,
        Revival(table, life_cycle),
        hosts,
        cache,
        Unloading(table, life_cycle, sample, lambda: settings.serve),
        registry(meter, Gauges(figures.queues, figures.workers, figures.cache), refusals),
        refusals,
    )


def _selection(settings: Settings) -> EngineSelection:
    config, profile = settings.config, settings.agent.profile
    threads = worker_settings(config, profile, "").threads

    async def attempt(files: ModelFiles) -> Loaded:
        return await trial(worker_settings(config, profile, files.engine), files, _TRIAL_S)

    stamps = {name: backend.stamp() for name, backend in BACKENDS.items()}
    order = [*(one for one in profile.engines if one in stamps)]
    order += [one for one in stamps if one not in order]
    extra = [f"{name}={stamp}" for name, stamp in stamps.items()]
    return EngineSelection(
        stamps={name: stamps[name] for name in order},
        fingerprint=detect().fingerprint(f"threads={threads}", *extra),
        memory=ChoiceMemory(config.state_dir / "engine_choices"),
        trial=attempt,
        only=None if config.engine == "auto" else config.engine,
    )


def _origins() -> dict[str, Origin]:
    return {name: origin.local(name, str(one.stamp())) for name, one in BACKENDS.items()}


def _stored(settings: Settings) -> Mapping[str, Stored]:
    found = {}
    for name, installs in settings.agent.store.list().items():
        active = next(one for one in installs.bundles if one.digest == installs.active)
        bundles = tuple((one.version, one.digest) for one in installs.bundles)
        found[name] = Stored((active.version, active.digest), bundles)
    return found


def _log(event: str, **facts: Any) -> None:
    is_trouble = event not in _USUAL
    _LOG.log(logging.WARNING if is_trouble else logging.INFO, event, extra=facts)
