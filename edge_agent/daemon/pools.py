"""From configuration and device profile to workers: how many, how large, for which classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from edge_agent.calls import Priority
from edge_agent.scheduler.limits import limits_of
from edge_agent.scheduler.scheduler import Scheduler
from edge_agent.serve_config import ClassConfig, ServeConfig
from edge_agent.serving.hosts import Host, HostKind
from edge_agent.workers.pool import Pool
from edge_agent.workers.settings import PoolSettings, WorkerSettings

if TYPE_CHECKING:
    from edge_agent.config import AgentConfig
    from edge_agent.workers.events import PoolEvents
    from edge_agent.workers.work import OpenModel
    from edge_profiles.profile import DeviceProfile

_MIB: Final = 1024 * 1024
# A worker is replaced in peace at one cap, and ended at once at the other, so much larger.
_OVERRUN: Final = 1.5


def _caps_mib(serve: ServeConfig, profile: DeviceProfile) -> tuple[int | None, int | None]:
    """Returns both caps of a worker, in MiB: none may hold more than the device has for all."""
    if serve.worker_memory_mib is not None:
        return serve.worker_memory_mib, int(serve.worker_memory_mib * _OVERRUN)
    most = profile.max_memory_mib
    return (None, None) if most is None else (max(1, int(most / _OVERRUN)), most)


def worker_settings(config: AgentConfig, profile: DeviceProfile, engine: str) -> WorkerSettings:
    """Returns how one worker is set up."""
    serve = config.serve or ServeConfig()
    _, most_mib = _caps_mib(serve, profile)
    return WorkerSettings(
        engine,
        max_image_bytes=config.max_image_mib * _MIB,
        max_image_pixels=config.max_image_megapixels * 1_000_000,
        threads=max(1, profile.threads // serve.workers),
        memory_limit_mib=most_mib,
    )


def make_host(
    kind: HostKind,
    config: AgentConfig,
    profile: DeviceProfile,
    open_model: OpenModel,
    events: PoolEvents,
) -> Host:
    """Makes a queue with its workers.

    Args:
        kind: What they are for.
        config: The configuration.
        profile: The device profile, fitted to this machine.
        open_model: Opens a model for a worker.
        events: Told of what happens to workers.
    """
    serve = config.serve or ServeConfig()
    scheduler = Scheduler(limits_of(serve))
    worker = worker_settings(config, profile, kind.engine)
    pools = [
        Pool(
            PoolSettings(
                _for_class(worker, own),
                count=serve.workers if own is None else 1,
                classes=classes,
                memory_mib=_caps_mib(serve, profile)[0],
                canary_s=serve.canary_s,
            ),
            scheduler,
            open_model,
            events,
        )
        for classes, own in _class_groups(serve)
    ]
    return Host(kind, scheduler, pools)


def _for_class(worker: WorkerSettings, own: ClassConfig | None) -> WorkerSettings:
    return worker if own is None else structs.replace(worker, nice=own.nice, cpus=own.cpus)


def _class_groups(serve: ServeConfig) -> list[tuple[frozenset[Priority], ClassConfig | None]]:
    """Returns the classes that share workers, and each that has workers of its own."""
    own = {
        Priority[name.upper()]: settings
        for name, settings in serve.classes.items()
        if settings != ClassConfig()
    }
    shared = frozenset(Priority) - frozenset(own)
    alone = [(frozenset({one}), settings) for one, settings in own.items()]
    return [*([(shared, None)] if shared else []), *alone]
