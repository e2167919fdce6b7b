"""Trying a model that never ran here, before it comes near the others."""

from __future__ import annotations

from edge_agent.workers.settings import WorkerSettings
from edge_agent.workers.work import Loaded, ModelFiles
from edge_agent.workers.worker import Worker

_STOP_S = 1.0


async def trial(settings: WorkerSettings, files: ModelFiles, timeout_s: float) -> Loaded:
    """Loads a model in a process of its own, which ends then.

    Args:
        settings: How the process is set up.
        files: The model; they may be closed when this returns.
        timeout_s: How long loading may take, in seconds.

    Raises:
        WorkerFailedError: The process crashed, hung, or held too much memory.
        AgentError: The model can't be loaded, or answers wrongly.
    """
    worker = await Worker.start(settings)
    try:
        return await worker.load(files, timeout_s)
    finally:
        await worker.stop(_STOP_S)
