"""The database on aiosqlite: every wait has a deadline, and none holds the event loop up."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import aiosqlite

from edge_agent.cache import scripts
from edge_agent.cache.connection import open_database
from edge_agent.cache.faults import SQL_FAILURES, CacheUnusable

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.cache.scripts import Rows, Script, Step

T = TypeVar("T")

_OPEN_S: Final = 10.0
_SCRIPT_S: Final = 10.0
_CLOSE_S: Final = 2.0
_CHUNK: Final = 64


async def connect(file: Path, busy_ms: int) -> aiosqlite.Connection:
    """Opens the database in a thread of its own; for errors see `open_database`.

    Raises:
        TimeoutError: It takes too long.
    """
    problem: list[Exception] = []

    def attempt() -> sqlite3.Connection:
        # aiosqlite doesn't wait for the thread of a connection that fails to open, which may then
        # outlive the event loop: so it always opens, and is closed as others are.
        try:
            return open_database(file, busy_ms)
        except Exception as error:  # noqa: BLE001 - raised below
            problem.append(error)
            return sqlite3.connect(":memory:")

    opening = asyncio.ensure_future(_opened(aiosqlite.Connection(attempt, _CHUNK)))
    try:
        await asyncio.wait({opening}, timeout=_OPEN_S)
    except asyncio.CancelledError:
        await _give_up(opening)
        raise
    if not opening.done():
        await _give_up(opening)
        raise TimeoutError
    connection = opening.result()
    if problem:
        await close(connection)
        raise problem[0]
    return connection


async def _opened(connection: aiosqlite.Connection) -> aiosqlite.Connection:
    return await connection


async def _give_up(opening: asyncio.Future[aiosqlite.Connection]) -> None:
    await asyncio.wait({opening}, timeout=_CLOSE_S)
    if opening.done():
        await close(opening.result())


async def run(connection: aiosqlite.Connection, script: Script[T]) -> T:
    """Runs a script; where a step fails, its transaction is undone.

    Raises:
        sqlite3.Error: A step failed.
        CacheUnusable: What it returned is of no use.
        TimeoutError: It takes too long; the connection is of no use any more.
    """
    async with asyncio.timeout(_SCRIPT_S):
        try:
            return await _run(connection, script)
        except (*SQL_FAILURES, CacheUnusable):
            if connection.in_transaction:
                await connection.rollback()
            raise


async def _run(connection: aiosqlite.Connection, script: Script[T]) -> T:
    try:
        step = next(script)
        while True:
            step = scripts.advance(script, await _rows(connection, step))
    except StopIteration as end:
        value: T = end.value
        return value


async def _rows(connection: aiosqlite.Connection, step: Step) -> Rows:
    if step.whole:
        await connection.executescript(step.sql)
        return ()
    if step.many:
        await connection.executemany(step.sql, step.parameters)
        return ()
    return [tuple(row) for row in await connection.execute_fetchall(step.sql, step.parameters)]


async def close(connection: aiosqlite.Connection) -> None:
    """Closes the database; a disk that doesn't answer is waited for no longer than 2 s.

    Who is cancelled meanwhile waits all the same: the thread must not outlive the event loop.
    """
    closing = asyncio.ensure_future(connection.close())
    try:
        await asyncio.wait({closing}, timeout=_CLOSE_S)
    except asyncio.CancelledError:
        await asyncio.wait({closing}, timeout=_CLOSE_S)
        raise
    finally:
        if closing.done():
            with suppress(sqlite3.Error, ValueError):
                closing.result()
