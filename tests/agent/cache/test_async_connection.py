"""Connections whose thread never outlives the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from edge_agent.cache import async_connection


def nap() -> int:
    time.sleep(0.3)
    return 1


def test_closing_that_is_cancelled_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()

    async def work() -> None:
        connection = await async_connection.connect(tmp_path / "cache.sqlite3", 100)
        await connection.create_function("nap", 0, nap)
        asking = asyncio.ensure_future(connection.execute_fetchall("SELECT nap()"))
        closing = asyncio.ensure_future(async_connection.close(connection))
        await asyncio.sleep(0.05)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        assert asking.done()

    asyncio.run(work())
    deadline = time.monotonic() + 5
    while threading.active_count() > before:  # it ends just after its last word
        assert time.monotonic() < deadline
