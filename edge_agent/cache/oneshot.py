"""The cache of the one-shot command: the same keys, entries and database, without an event loop."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from edge_agent.cache import conversion, entry, key, scripts
from edge_agent.cache.connection import (
    MAX_LOG_BYTES,
    identity,
    log_bytes,
    max_pages,
    open_database,
    rebuild,
    run,
)
from edge_agent.cache.entry import Kept
from edge_agent.cache.faults import SQL_FAILURES, CacheUnusable, in_words, is_damage
from edge_agent.cache.key import CacheSubject
from edge_agent.calls import size_of_inputs
from edge_agent.description import digest_of_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_agent.bundles import Bundle
    from edge_agent.cache.key import Origin
    from edge_agent.serve_config import CacheConfig
    from edge_agent.types import Request, Result

T = TypeVar("T")

# Another process may hold the database for longer; the command goes on without it.
_BUSY_MS: Final = 50
_BATCH: Final = 64
_FAILURES: Final = (*SQL_FAILURES, CacheUnusable, OSError)


class OneShotAnswers:
    """Answers that this user's commands gave before. Implements `runtime.Answers`.

    Args:
        file: The database.
        config: The table ``[cache]``; it must not switch the cache off.
        foreseen: Says which engine will run a bundle, as far as that is known without importing
            any.
        origin: Says what the cache calls an engine.
    """

    def __init__(
        self,
        file: Path,
        config: CacheConfig,
        foreseen: Callable[[Bundle], str | None],
        origin: Callable[[str], Origin],
    ) -> None:
        self._file = file
        self._ttl_s = config.ttl_s
        self._max_pages = max_pages(config.mib)
        self._max_bytes = config.mib * 1024 * 1024 // 8
        self._foreseen = foreseen
        self._origin = origin
        self._tenant = f"uid:{os.getuid()}"
        self._connection: sqlite3.Connection | None = None
        self._identity = 0
        self._is_off = False
        self._question: Question | None = None
        self._rows: list[scripts.Row] = []
        self._uses: list[scripts.Use] = []

    def recall(self, bundle: Bundle, request: Request) -> Result | None:
        """See `runtime.Answers.recall`."""
        engine = None if self._is_off else self._foreseen(bundle)
        if engine is None:
            return None
        question = self._ask(bundle, engine, request)
        kept = self._find(question.digest)
        if kept is None:
            return None
        self._uses.append(scripts.Use(question.number, entry.seconds_now(), 1))
        return conversion.result_of(kept.answer, bundle.ref, engine, request.source)

    def keep(self, bundle: Bundle, request: Request, result: Result) -> None:
        """See `runtime.Answers.keep`."""
        if self._is_off:
            return
        question = self._ask(bundle, result.engine, request)
        created = entry.seconds_now()
        value = entry.encode(question.digest, Kept(conversion.answer_of(result), created))
        if value is None or len(value) > self._max_bytes:
            return
        digest = bundle.ref.digest
        self._rows.append(
            scripts.Row(
                question.number, question.fingerprint, digest, result.engine, created, value
            )
        )
        if len(self._rows) >= _BATCH:
            self.settle()

    def settle(self) -> None:
        """See `runtime.Answers.settle`."""
        if self._rows or self._uses:
            self._attempt(self._write)
        self._rows, self._uses = [], []

    def close(self) -> None:
        """Closes the database. The command ends without: that would empty the log each time."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, bundle: Bundle, engine: str, request: Request) -> Question:
        """Returns the key of a request; that of the last one is still known."""
        last = self._question
        if last is None or last.request is not request or last.engine != engine:
            last = self._question = Question(self._subject(bundle, engine), request)
        return last

    def _subject(self, bundle: Bundle, engine: str) -> CacheSubject:
        pipeline = digest_of_pipeline(bundle.description)
        return CacheSubject(bundle.ref.digest, pipeline, self._origin(engine), self._tenant)

    def _find(self, digest: bytes) -> Kept | None:
        if not os.path.exists(self._file):
            return None  # it is made when there is something to write
        rows = self._attempt(
            lambda it: it.execute(scripts.GET, (key.as_number(digest),)).fetchall()
        )
        for (value,) in rows or ():
            kept = entry.decode(digest, value)
            if kept is not None and entry.lasts(kept.created, self._ttl_s):
                return kept
        return None

    def _write(self, connection: sqlite3.Connection) -> None:
        if log_bytes(self._file) > MAX_LOG_BYTES:
            run(connection, scripts.empty_log())
        run(connection, scripts.store(self._rows, self._uses, self._max_pages))

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Does something with the database; what fails ends its use, but nothing else."""
        if self._is_off:
            return None
        try:
            if self._connection is None:
                self._connection = open_database(self._file, _BUSY_MS)
                self._identity = identity(self._file)
            return work(self._connection)
        except _FAILURES as error:
            self._is_off = True
            if is_damage(error):
                self._mend(in_words(error))
        return None

    def _mend(self, reason: str) -> None:
        """Makes a damaged database anew, so that the next command finds a good one."""
        with suppress(*_FAILURES):
            rebuild(self._file, self._identity, reason)


class Question:
    """One request, with its key.

    Attributes:
        request: The request.
        engine: Which engine is to answer it.
        digest: The key.
        number: Its first bits.
        fingerprint: Of its inputs.
    """

    def __init__(self, subject: CacheSubject, request: Request) -> None:
        query = conversion.query_of(request)
        head = key.head(subject, query)
        self.request = request
        self.engine = subject.origin.engine
        self.digest = key.key(head, query)
        self.number = key.as_number(self.digest)
        is_small = size_of_inputs(query) <= key.SMALL_BYTES
        self.fingerprint = self.number if is_small else key.fingerprint(head, query)
