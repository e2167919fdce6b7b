"""A model's files, for as long as workers load it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edge_agent.workers.work import ModelFiles, OpenModel


@asynccontextmanager
async def opened(open_model: OpenModel, digest: str) -> AsyncIterator[ModelFiles]:
    """Opens a model and closes its files again.

    Args:
        open_model: Opens models.
        digest: Which.

    Yields:
        The model.
    """
    files = await open_model(digest)
    try:
        yield files
    finally:
        for one in files.files.values():
            os.close(one)
