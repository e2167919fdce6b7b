"""A running pool with models of the stand-in, and what stands around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from edge_agent.calls import Answer
from edge_agent.errors import AgentError, ModelNotFoundError
from edge_agent.workers.pool import Pool
from edge_agent.workers.settings import PoolSettings, WorkerSettings
from edge_agent.workers.work import ModelFiles
from tests.agent import models

from .daemon_side import Told, Work, children, model_files, open_descriptors, saying, scripted

ROWS, PAIR, COLOUR = "acme/rows", "acme/pair", "acme/colour"
REAL = {one["name"]: one for one in (models.ROWS, models.PAIR, models.COLOUR)}
MIB = 1 << 20


class Shelf:
    """Opens models; those of the stand-in by their code, the others by name."""

    def __init__(self) -> None:
        self.codes: dict[str, str] = {}
        self.broken: dict[str, AgentError] = {}
        self.opened: list[str] = []

    async def open(self, digest: str) -> ModelFiles:
        self.opened.append(digest)
        if digest in self.broken:
            raise self.broken[digest]
        if digest in REAL:
            return model_files(REAL[digest])
        if digest in self.codes:
            return scripted(digest, self.codes[digest])
        raise ModelNotFoundError(f"no {digest}")


@dataclass
class Scene:
    """A running pool, and what stands around it."""

    pool: Pool
    work: Work
    shelf: Shelf
    told: Told

    def pids(self) -> list[int]:
        return [one.pid for one in self.pool.status().workers if one.pid is not None]

    def models(self) -> set[frozenset[str]]:
        """What the workers have loaded."""
        return {frozenset(slot.models) for slot in self.pool._slots}

    async def put(self, **codes: str) -> None:
        """Loads models of the stand-in."""
        for name, code in codes.items():
            self.shelf.codes[name] = code
            await self.pool.load(name)

    async def echo(self, model: str, *values: int) -> bool:
        """Whether the stand-in gives bytes back."""
        (one,) = await self.work.ask(model, saying("", *values))
        return isinstance(one, Answer) and one.outputs[0].data == bytes(values)


@asynccontextmanager
async def scene(
    settings: WorkerSettings, work: Work | None = None, **pool_settings: Any
) -> AsyncIterator[Scene]:
    before = open_descriptors()
    work, told, shelf = work or Work(), Told(), Shelf()
    pool = Pool(PoolSettings(settings, **pool_settings), work, shelf.open, told)
    running = asyncio.create_task(pool.run())
    try:
        yield Scene(pool, work, shelf, told)
    finally:
        await pool.stop(5.0)
        await running
    assert children() == ""
    assert open_descriptors() == before
