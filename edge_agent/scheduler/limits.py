"""How much may wait, for how long, and who gets which share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from edge_agent.serve_config import ServeConfig


class TenantLimits(Struct, frozen=True):
    """What one tenant may have.

    Attributes:
        weight: Share beside the other tenants'.
        max_queued: How many of its jobs may wait at a time; None means as the queues allow.
    """

    weight: float = 1.0
    max_queued: int | None = None


_UNNAMED: Final = TenantLimits()


class SchedulerLimits(Struct, frozen=True):
    """What holds for all models.

    Attributes:
        max_queued: Jobs that wait at a time, of each model and class.
        max_queued_bytes: Bytes of all waiting jobs.
        age_s: After so long without a run, a tenant's jobs in a queue count as one class more
            urgent, in seconds.
        max_batch: Most rows that run together.
        max_batch_wait_s: Longest wait of a free worker for more rows, in seconds.
        max_run_s: A run that takes longer counts as hung, in seconds.
        tenants: Tenants with limits of their own.
    """

    max_queued: int
    max_queued_bytes: int
    age_s: float
    max_batch: int
    max_batch_wait_s: float
    max_run_s: float
    tenants: Mapping[str, TenantLimits]

    def tenant(self, name: str) -> TenantLimits:
        """Returns what one tenant may have."""
        return self.tenants.get(name, _UNNAMED)


class ModelQueueSettings(Struct, frozen=True):
    """What the scheduler is told of one model.

    Attributes:
        run_ms: How long one row is expected to take, in milliseconds, until runs were measured; 0
            where that isn't known.
        batches: Whether rows of several callers may run together.
        max_batch: Most rows that run together; None means as the limits say.
        weight: Share of the workers beside the other models'.
        sizes_vary: Whether an input has an axis of any length beside its rows: then one run says
            little of how long the next may take.
    """

    run_ms: float
    batches: bool = False
    max_batch: int | None = None
    weight: float = 1.0
    sizes_vary: bool = False


def limits_of(config: ServeConfig) -> SchedulerLimits:
    """Returns the limits that a configuration sets."""
    return SchedulerLimits(
        max_queued=config.max_queued,
        max_queued_bytes=config.max_queued_mib * 1024**2,
        age_s=config.age_s,
        max_batch=config.max_batch,
        max_batch_wait_s=config.max_batch_wait_ms / 1000,
        max_run_s=config.max_run_ms / 1000,
        tenants={
            name: TenantLimits(tenant.weight, tenant.max_queued)
            for name, tenant in config.tenants.items()
        },
    )
