"""What an owner can set for the daemon and the cache: tables of config.toml."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from edge_agent.errors import ConfigError

_Percent = Annotated[int, Meta(ge=1, le=100)]
_Class = Literal["critical", "high", "normal", "bulk"]
_Weight = Annotated[float, Meta(ge=0.01, le=100)]
_Seconds = Annotated[float, Meta(ge=0, le=86400)]
_Name = Annotated[str, Meta(min_length=1, max_length=128)]
_CpuNumber = Annotated[int, Meta(ge=0, le=4095)]
_ABSOLUTE_PATH: Final = r"^/[^\0]*(?!\n)$"
_AbsolutePath = Annotated[str, Meta(pattern=_ABSOLUTE_PATH, max_length=4096)]
_TENANT: Final = r"^(uid:[0-9]+|token:[A-Za-z0-9._-]+|cert:.+)(?!\n)$"
_Tenant = Annotated[str, Meta(pattern=_TENANT, max_length=128)]
# What each of them takes, for people.
_PATTERN_WORDS: Final = {
    _ABSOLUTE_PATH: "an absolute path, which begins with /",
    _TENANT: "uid:NUMBER, token:NAME or cert:NAME, in quotation marks",
}


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every table: immutable, and strict about unknown keys."""


class CacheConfig(_Table, frozen=True):
    """The table ``[cache]``.

    Attributes:
        mib: Largest size of the database in MiB; 0 switches the cache off.
        ttl_s: How long an answer is kept, in seconds.
    """

    mib: Annotated[int, Meta(ge=0, le=1 << 20)] = 64
    ttl_s: Annotated[int, Meta(ge=1, le=366 * 86400)] = 86400


class TcpConfig(_Table, frozen=True):
    """The table ``[serve.tcp]``: who may come over the network.

    Attributes:
        port: TCP port; 0 takes a free one.
        address: IP address to listen on.
        hosts: Names in the ``Host`` header that are taken, beside the address; a page's
            ``Origin`` must be one of them.
        tokens_file: Bearer tokens, one ``NAME TOKEN`` a line; readable by the agent only.
        certificate: TLS certificate chain, PEM; without it the connection is plain, and the
            address must be a loopback one.
        key: Its private key, PEM.
        client_ca: Certificates of this authority are taken from clients, PEM.
    """

    port: Annotated[int, Meta(ge=0, le=65535)]
    address: Annotated[str, Meta(min_length=1, max_length=64)] = "127.0.0.1"
    hosts: tuple[_Name, ...] = ()
    tokens_file: _AbsolutePath | None = None
    certificate: _AbsolutePath | None = None
    key: _AbsolutePath | None = None
    client_ca: _AbsolutePath | None = None


class ClassConfig(_Table, frozen=True):
    """A table ``[serve.classes.NAME]``: a class that has one of these gets workers of its own.

    Attributes:
        nice: Added to the niceness of its workers.
        cpus: Numbers of the CPUs that its workers may use; empty means all.
    """

    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    cpus: tuple[_CpuNumber, ...] = ()


class TenantConfig(_Table, frozen=True):
    """A table ``[serve.tenants."uid:1000"]``.

    Attributes:
        weight: Share beside the other tenants'.
        highest_class: The most urgent class that it may ask for.
        max_queued: How many of its requests may wait at a time.
    """

    weight: _Weight = 1.0
    highest_class: _Class = "critical"
    max_queued: Annotated[int, Meta(ge=1, le=65536)] | None = None


class ModelConfig(_Table, frozen=True):
    """A table ``[serve.models."acme/classifier"]``.

    Attributes:
        weight: Share of the engine beside the other models'.
        isolated: Whether it gets a worker process of its own.
        max_batch: Most rows that run together, for a model with a batch axis.
    """

    weight: _Weight = 1.0
    isolated: bool = False
    max_batch: Annotated[int, Meta(ge=1, le=1024)] | None = None


class ServeConfig(_Table, frozen=True):
    """The table ``[serve]``.

    Attributes:
        log_level: The least that is logged; each request only at ``debug``.
        socket_group: Group that may use the data socket; None leaves it the daemon's own.
        tcp: Where to listen beyond the sockets.
        drain_s: How long requests in the air may take after SIGTERM, in seconds.
        default_deadline_ms: Deadline of a request that names none, where the contract has none.
        max_request_mib: Largest body of a request, in MiB.
        max_connections: Connections at a time, of each socket and of TCP.
        max_queued: Requests that wait at a time, of each model and class.
        max_queued_mib: Bytes of all waiting requests, in MiB.
        age_s: After so long without a run, a caller's requests of a model and class count as one
            class more urgent, in seconds.
        max_batch: Most rows that run together, for models with a batch axis.
        max_batch_wait_ms: Longest wait for more rows, in milliseconds.
        isolation: ``engine``: one worker process for all models of an engine; ``bundle``: one each.
        workers: Processes of each kind that work side by side.
        worker_memory_mib: A worker that holds more is replaced, in MiB; None means as the device
            profile says.
        max_run_ms: A single run that takes longer counts as hung, in milliseconds.
        canary_s: How often each worker must prove that it answers, in seconds.
        idle_unload_s: A model that nobody asked for so long is unloaded; 0 means never.
        memory_high_percent: Share of memory in use above which models that rest are unloaded.
        memory_low_percent: Below this, unloading stops.
        stall_high_percent: Share of time lost to a lack of memory above which they are.
        stall_low_percent: Below this, unloading stops.
        classes: Settings of priority classes.
        tenants: Settings of tenants.
        models: Settings of models.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    socket_group: _Name | None = None
    tcp: TcpConfig | None = None
    drain_s: _Seconds = 20.0
    default_deadline_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 10_000
    max_request_mib: Annotated[int, Meta(ge=1, le=4096)] = 64
    max_connections: Annotated[int, Meta(ge=1, le=65536)] = 512
    max_queued: Annotated[int, Meta(ge=1, le=65536)] = 128
    max_queued_mib: Annotated[int, Meta(ge=1, le=65536)] = 256
    age_s: Annotated[float, Meta(ge=0.01, le=3600)] = 2.0
    max_batch: Annotated[int, Meta(ge=1, le=1024)] = 8
    max_batch_wait_ms: Annotated[float, Meta(ge=0, le=1000)] = 5.0
    isolation: Literal["engine", "bundle"] = "engine"
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    worker_memory_mib: Annotated[int, Meta(ge=64, le=1 << 20)] | None = None
    max_run_ms: Annotated[int, Meta(ge=10, le=3_600_000)] = 10_000
    canary_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    idle_unload_s: _Seconds = 0.0
    memory_high_percent: _Percent = 90
    memory_low_percent: _Percent = 75
    stall_high_percent: _Percent = 20
    stall_low_percent: _Percent = 5
    classes: dict[_Class, ClassConfig] = {}
    tenants: dict[_Tenant, TenantConfig] = {}
    models: dict[_Name, ModelConfig] = {}

    def __post_init__(self) -> None:
        if self.memory_low_percent > self.memory_high_percent:
            raise ValueError("memory_low_percent is above memory_high_percent")
        if self.stall_low_percent > self.stall_high_percent:
            raise ValueError("stall_low_percent is above stall_high_percent")


TABLES: Final[dict[str, type[Struct]]] = {"cache": CacheConfig, "serve": ServeConfig}


def table(name: str, value: Any, place: str) -> Any:
    """Reads one of the `TABLES`.

    Args:
        name: Which.
        value: As TOML has it.
        place: What errors name.

    Raises:
        ConfigError: An unknown key, a value out of bounds.
    """
    try:
        return msgspec.convert(value, TABLES[name])
    except msgspec.ValidationError as error:
        from edge_agent.formats import complaint

        found = complaint(str(error), TABLES[name], value, _PATTERN_WORDS)
        key = ".".join(part for part in (name, found.place) if part)
        raise ConfigError(f"{key}: {found.message}", path=place) from error
