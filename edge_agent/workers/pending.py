"""Commands that a worker was given and hasn't answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from edge_agent.errors import AgentError
from edge_agent.workers import replies
from edge_agent.workers.protocol import (
    Command,
    Done,
    Failed,
    LoadModel,
    ProbeModel,
    Ready,
    Report,
    RunBatch,
    UnloadModel,
)
from edge_agent.workers.work import Loaded

Read = Callable[[Report], Any]
"""Turns a report into what the caller gets, or raises an `UntrueError`."""

# A timer that is later than this, in seconds, shows that the daemon itself stood still,
_STOOD_STILL_S: Final = 0.25
# and an answer may lie in the socket that nobody has looked at.
_LAST_LOOK_S: Final = 0.01

_TASKS: Final[dict[type[Command], str]] = {
    LoadModel: "for loading a model",
    UnloadModel: "for unloading a model",
    ProbeModel: "for a golden input",
    RunBatch: "for a run",
}


class _Asked(Struct):
    """One command.

    Attributes:
        digest: The model that it is about.
        read: What becomes of its report.
        result: What the caller waits for, unless that was cancelled.
        timer: Tells that it takes too long.
        answered: Done when it is pending no more, if anybody asked for that.
    """

    digest: str
    read: Read
    result: asyncio.Future[Any]
    timer: asyncio.TimerHandle
    answered: asyncio.Future[None] | None = None

    def end(self) -> None:
        """It is pending no more."""
        self.timer.cancel()
        if self.answered is not None:
            resolve(self.answered, None)


class Pending:
    """The commands of one worker, by their numbers.

    Args:
        overdue: Called with how one took too long, and the digest of its model.
    """

    def __init__(self, overdue: Callable[[str, str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._overdue = overdue
        self._asked: dict[int, _Asked] = {}
        self._last_id = 0

    def next_id(self) -> int:
        """Returns the number of a new command."""
        self._last_id += 1
        return self._last_id

    def add(self, command: Command, timeout_s: float, read: Read) -> asyncio.Future[Any]:
        """Takes in a command that was sent, and returns what its caller waits for."""
        timer = self._loop.call_later(timeout_s, self._look, command, timeout_s)
        result: asyncio.Future[Any] = self._loop.create_future()
        self._asked[command.id] = _Asked(command.digest, read, result, timer)
        return result

    def answered(self, command_id: int) -> asyncio.Future[None] | None:
        """Returns what is done when a command is pending no more; None where it isn't now.

        Its caller's going away doesn't end it.
        """
        asked = self._asked.get(command_id)
        if asked is None:
            return None
        if asked.answered is None:
            asked.answered = self._loop.create_future()
        return asked.answered

    def _look(self, command: Command, timeout_s: float) -> None:
        """Gives a command its time again where the whole machine was paused, else a last chance."""
        asked = self._asked[command.id]
        if self._loop.time() > asked.timer.when() + _STOOD_STILL_S:
            asked.timer = self._loop.call_later(timeout_s, self._look, command, timeout_s)
        else:
            asked.timer = self._loop.call_later(_LAST_LOOK_S, self._late, command, timeout_s)

    def _late(self, command: Command, timeout_s: float) -> None:
        task = _TASKS[type(command)]
        self._overdue(f"took longer than {timeout_s:g} s {task}", command.digest)

    def answer(self, report: Report) -> None:
        """Hands a report to whoever waits for it.

        Raises:
            UntrueError: Nobody does, or it can't be true; the command is pending still.
        """
        asked = None if isinstance(report, Ready) else self._asked.get(report.id)
        if isinstance(report, Ready) or asked is None:
            raise replies.UntrueError("answered what nobody asked")
        if isinstance(report, Failed):
            reject(asked.result, replies.failed(report.failure))
        else:
            resolve(asked.result, asked.read(report))
        del self._asked[report.id]
        asked.end()

    def models(self) -> frozenset[str]:
        """Returns the digests of the models that commands are about."""
        return frozenset(one.digest for one in self._asked.values())

    def fail(self, error: Callable[[], AgentError]) -> None:
        """Fails all of them, each with an error of its own."""
        for asked in self._asked.values():
            reject(asked.result, error())
            asked.end()
        self._asked.clear()


def loaded(report: Report) -> Loaded:
    """Reads the report to a `LoadModel`."""
    if not isinstance(report, Done):
        raise replies.UntrueError("answered a load with something else")
    return replies.checked(report.loaded)


def done(report: Report) -> None:
    """Reads the report to a command that has no result."""
    if not isinstance(report, Done):
        raise replies.UntrueError("answered a command with something else")


def resolve(future: asyncio.Future[Any], value: Any) -> None:
    """Sets a result, unless whoever waited for it was cancelled."""
    if not future.done():
        future.set_result(value)


def reject(future: asyncio.Future[Any], error: AgentError) -> None:
    """Sets an error, unless whoever waited was cancelled; it is no fault that nobody waits."""
    if not future.done():
        future.set_exception(error)
        future.exception()
