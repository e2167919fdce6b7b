"""Why a job isn't run, as its caller hears it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from edge_agent.errors import DeadlineExceededError, ModelNotReadyError, OverloadedError

Full: TypeAlias = Literal["queue_full", "tenant_full"]


def overloaded(full: Full, retry_after_s: float) -> OverloadedError:
    """Too much waits, of everybody or of this tenant."""
    is_callers_share = full == "tenant_full"
    whose = "this caller's share of the queue" if is_callers_share else "the queue"
    return OverloadedError(
        f"{whose} is full",
        retry_after_s=retry_after_s,
        is_callers_share=is_callers_share,
        hint="try again later, or ask less often",
    )


def removed() -> ModelNotReadyError:
    """The model isn't there, or not any more."""
    return ModelNotReadyError("the model is not loaded", hint="load it, or try again later")


def too_late() -> DeadlineExceededError:
    """The deadline has passed, or will have."""
    return DeadlineExceededError(
        "the answer would come too late", hint="allow more time, or ask less often"
    )
