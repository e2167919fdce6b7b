"""Subjects, queries and answers, and a cache that runs while a coroutine does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from edge_agent.cache.cache import ResultCache
from edge_agent.cache.database import Pace
from edge_agent.cache.key import CacheSubject, Origin
from edge_agent.calls import Answer, InputTensor, OutputTensor, Query
from edge_agent.serve_config import CacheConfig
from edge_agent.types import ScoredLabel

T = TypeVar("T")

SUBJECT = CacheSubject("sha256:" + "a" * 64, "sha256:" + "b" * 64, Origin("onnx", ("1",)), "uid:7")
LARGE = 64 * 1024
QUICK = Pace(get_s=10, gather_s=0, tick_s=0.01, tidy_s=0.05, retry_s=0.02)


def query(data: bytes | bytearray | memoryview) -> Query:
    return Query("labels", (InputTensor("x", "uint8", (len(data),), data),))


def large(seed: int) -> Query:
    """A query that is sampled before it is hashed."""
    return query(seed.to_bytes(4, "little") * (LARGE // 4))


def answer(number: int, size: int = 8) -> Answer:
    """An answer that says which one it is."""
    label = ScoredLabel(number, f"class {number}", 0.5)
    output = OutputTensor("y", "uint8", (size,), number.to_bytes(8, "little") * (size // 8))
    return Answer(((label,),), (output,), (True,))


async def until(holds: Callable[[], object]) -> None:
    """Waits for what another task or thread does; the test's own timeout bounds it."""
    while not holds():
        await asyncio.sleep(0.002)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cache.sqlite3"


def serve(
    file: Path,
    work: Callable[[ResultCache], Awaitable[T]],
    config: CacheConfig | None = None,
    pace: Pace = QUICK,
) -> T:
    """Runs a cache on the file while `work` uses it."""

    async def both() -> T:
        cache = ResultCache(file, config or CacheConfig(), pace)
        running = asyncio.ensure_future(cache.run())
        try:
            return await work(cache)
        finally:
            running.cancel()
            await asyncio.wait({running})
            assert running.cancelled() or running.exception() is None

    return asyncio.run(both())


async def ask(cache: ResultCache, asked: Query, subject: CacheSubject = SUBJECT) -> Answer | None:
    """Asks the cache as serving does: what isn't there is computed, as `answer(1)`, and put."""
    ticket = cache.ticket(subject, asked)
    known = await cache.get(ticket)
    if known is None:
        cache.put(ticket, answer(1))
    return known


def is_root() -> bool:
    return os.geteuid() == 0
