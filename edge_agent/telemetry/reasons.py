"""Why calls got no answer, in a few fixed words."""

from __future__ import annotations

from asyncio import CancelledError
from enum import StrEnum
from typing import Final

from edge_agent import errors


class Reason(StrEnum):
    """The words; those of `REJECTIONS` are about calls that were not taken at all."""

    BAD_INPUT = "bad_input"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    ENGINE = "engine"
    FAULT = "fault"
    NOT_FOUND = "not_found"
    NOT_READY = "not_ready"
    QUEUE_FULL = "queue_full"
    TENANT_FULL = "tenant_full"
    WORKER = "worker"


REJECTIONS: Final = frozenset(
    (Reason.NOT_FOUND, Reason.NOT_READY, Reason.QUEUE_FULL, Reason.TENANT_FULL)
)
# The first that fits decides.
_REASONS: Final[tuple[tuple[type[BaseException], Reason], ...]] = (
    (errors.DescriptionError, Reason.ENGINE),
    (errors.ModelFileError, Reason.ENGINE),
    (errors.BadInputError, Reason.BAD_INPUT),
    (errors.DeadlineExceededError, Reason.DEADLINE),
    (errors.EngineFailedError, Reason.ENGINE),
    (errors.WorkerFailedError, Reason.WORKER),
    (errors.ModelNotFoundError, Reason.NOT_FOUND),
    (errors.OverloadedError, Reason.QUEUE_FULL),
    (errors.UnavailableError, Reason.NOT_READY),
    (CancelledError, Reason.CANCELLED),
)


def reason_of(error: BaseException) -> Reason:
    """Returns the reason that an error stands for; a fault for one that nobody expected."""
    if isinstance(error, errors.OverloadedError) and error.is_callers_share:
        return Reason.TENANT_FULL
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), Reason.FAULT)
