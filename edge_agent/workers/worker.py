"""One child process that loads models and answers queries, and the conversation with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from edge_agent.calls import Query
from edge_agent.child_process import ending
from edge_agent.errors import BadInputError, WorkerFailedError
from edge_agent.workers import pending, replies
from edge_agent.workers.answer_form import AnswerForm
from edge_agent.workers.channel import Channel
from edge_agent.workers.pending import Pending, Read
from edge_agent.workers.process import WorkerProcess
from edge_agent.workers.protocol import (
    Command,
    Failed,
    Item,
    LoadModel,
    ProbeModel,
    Ran,
    Ready,
    Report,
    RunBatch,
    TensorPart,
    UnloadModel,
)
from edge_agent.workers.settings import Trouble, WorkerSettings
from edge_agent.workers.tensor_memory import MAX_BYTES, TensorMemory
from edge_agent.workers.work import Loaded, ModelFiles, Outcome

START_S: Final = 30.0
CHILD: Final = "edge_agent.workers.child"
# A child that closed its socket is about to end, and how it ends says why.
_END_S: Final = 1.0
_MAX_SHOWN: Final = 4096
_NO_MEMORY: Final = (
    "if the kernel's log tells of memory: serve fewer models, or set serve.worker_memory_mib"
)


class Ended(Struct, frozen=True):
    """Why a worker is no more.

    Attributes:
        trouble: Its kind; None where it was told to stop.
        message: What happened, one sentence.
        models: Digests of what it was at work on.
        hint: What to do next.
        said: Its last words on standard error: for logs, not for callers of other models.
    """

    trouble: Trouble | None
    message: str
    models: frozenset[str] = frozenset()
    hint: str | None = None
    said: str = ""

    def error(self) -> WorkerFailedError:
        """Returns what those get who waited for it."""
        return WorkerFailedError(self.message, hint=self.hint)


class Worker:
    """A running child; made by `start`.

    Every method raises a `WorkerFailedError` where the worker has ended or ends meanwhile.

    Attributes:
        settings: How it was set up.
        ended: Done when it is no more.
        ready: What it said when its engine was imported.
        idle_bytes: How much memory it held then.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        loop = asyncio.get_running_loop()
        self.settings = settings
        self.ended: asyncio.Future[Ended] = loop.create_future()
        self.ready: Ready | None = None
        self.idle_bytes = 0
        self._loop = loop
        self._started: asyncio.Future[None] = loop.create_future()
        self._running = 0
        self._forms: dict[str, AnswerForm] = {}
        self._pending = Pending(self._overdue)
        most_mib = settings.memory_limit_mib
        self._memory = TensorMemory.create(
            MAX_BYTES if most_mib is None else min(MAX_BYTES, most_mib << 20)
        )
        try:
            ours, self._process = self._spawn()
        except BaseException:
            self._memory.close()
            raise
        self._channel = Channel(ours, self._received, self._broken)

    def _spawn(self) -> tuple[socket.socket, WorkerProcess]:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                shared = (theirs.fileno(), self._memory.descriptor)
                told = msgspec.json.encode(self.settings.for_child(os.getpid())).decode()
                arguments = (self.settings.engine, *map(str, shared), told)
                return ours, WorkerProcess(CHILD, arguments, shared)
        except BaseException:
            ours.close()
            raise

    @classmethod
    async def start(cls, settings: WorkerSettings) -> Worker:
        """Starts a child and waits until its engine is imported.

        Raises:
            WorkerFailedError: It can't be started, or ended, or wasn't ready in time.
            AgentError: It says that its engine can't be used.
        """
        try:
            worker = cls(settings)
        except OSError as error:
            raise WorkerFailedError(f"no worker can be started: {error.strerror}") from error
        overdue = worker._loop.call_later(
            START_S, worker._overdue, f"took longer than {START_S:g} s to start"
        )
        try:
            await worker._started
            worker._require_running()
        except BaseException:
            worker.kill(None, "the worker was not needed any more")
            await worker._process.gone()
            raise
        finally:
            overdue.cancel()
        return worker

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def held_bytes(self) -> int:
        """Returns how much memory it holds, the shared included."""
        if self.ended.done():
            return 0
        return self._process.held_bytes(self._memory.descriptor)

    def look(self) -> None:
        """Takes in what it said on standard error, so that there is room for its last words."""
        self._process.drain()

    async def load(self, files: ModelFiles, timeout_s: float) -> Loaded:
        """Loads a model and runs its golden input.

        Args:
            files: The model; they may be closed when this returns.
            timeout_s: The worker is ended when it takes longer, in seconds.

        Raises:
            AgentError: It can't be loaded, or answers wrongly.
        """
        command = LoadModel(
            self._pending.next_id(),
            files.digest,
            files.name,
            files.version,
            files.description,
            files.engine,
            tuple(files.files),
        )
        descriptors = tuple(files.files.values())
        loaded: Loaded = await self._send(command, timeout_s, pending.loaded, descriptors)
        self._forms[files.digest] = files.form
        return loaded

    async def unload(self, digest: str, timeout_s: float) -> None:
        """Frees a model.

        Args:
            digest: The model.
            timeout_s: The worker is ended when it takes longer, in seconds.

        Raises:
            ModelNotReadyError: There is none of that digest.
        """
        await self._send(UnloadModel(self._pending.next_id(), digest), timeout_s, pending.done)
        self._forms.pop(digest, None)

    async def probe(self, digest: str, timeout_s: float) -> None:
        """Has a model answer its golden input.

        Args:
            digest: The model.
            timeout_s: The worker is ended when it takes longer, in seconds.

        Raises:
            GoldenMismatchError: It answers wrongly.
            AgentError: It can't answer.
        """
        await self._send(ProbeModel(self._pending.next_id(), digest), timeout_s, pending.done)

    async def run(self, digest: str, queries: Sequence[Query], timeout_s: float) -> list[Outcome]:
        """Answers queries together; one call runs at a time, later ones wait.

        A call that is cancelled runs on, unheard.

        Args:
            digest: The model.
            queries: What is asked.
            timeout_s: The worker is ended when it takes longer, in seconds. Queries that are too
                large together run in parts, each of which may take as long.

        Returns:
            One outcome a query, in their order.

        Raises:
            AgentError: None of them can be answered.
        """
        while (answered := self._pending.answered(self._running)) is not None:
            await asyncio.wait((answered,))
        self._require_running()
        self._memory.reset()
        try:
            told = self._send_batch(digest, queries, timeout_s)
        except BadInputError as error:
            if len(queries) < 2:
                return [error]
            middle = len(queries) // 2  # together they are too large; each may be small enough
            first = await self.run(digest, queries[:middle], timeout_s)
            return [*first, *await self.run(digest, queries[middle:], timeout_s)]
        return await told

    def kill(
        self, trouble: Trouble | None, message: str, models: frozenset[str] | None = None
    ) -> None:
        """Ends it now; does nothing where it has ended.

        Args:
            trouble: Why; None where it isn't its fault.
            message: What those get who wait for it, one sentence.
            models: Digests of the models whose fault it may be; None means what it is at work on.
        """
        self._end(trouble, message, models)

    async def stop(self, timeout_s: float) -> None:
        """Has it end, and waits until it is gone.

        Args:
            timeout_s: Then it is killed, in seconds.
        """
        try:
            if not self.ended.done():
                self._forget(Ended(None, "the worker was stopped"))
                self._process.bury()
                await asyncio.wait((self._process.exited,), timeout=timeout_s)
        finally:
            self._process.kill()
        await self._process.gone()

    def _require_running(self) -> None:
        if self.ended.done():
            raise self.ended.result().error()

    def _send_batch(
        self, digest: str, queries: Sequence[Query], timeout_s: float
    ) -> asyncio.Future[list[Outcome]]:
        items = tuple([self._item(query) for query in queries])
        command = RunBatch(self._pending.next_id(), digest, items)
        self._running = command.id
        form = self._forms.get(digest)
        return self._send(command, timeout_s, lambda said: self._outcomes(said, queries, form))

    def _item(self, query: Query) -> Item:
        put = self._memory.put
        return Item(
            query.wants,
            tuple(
                [
                    TensorPart(one.name, one.dtype, one.shape, put(one.data), one.is_json)
                    for one in query.tensors
                ]
            ),
            tuple([put(one) for one in query.images]),
            query.top_k,
            query.outputs,
        )

    def _send(
        self,
        command: Command,
        timeout_s: float,
        read: Read,
        descriptors: Sequence[int] = (),
    ) -> asyncio.Future[Any]:
        self._require_running()
        try:
            self._channel.send(command, descriptors)
        except OSError as error:
            raise WorkerFailedError(f"files can't be handed over: {error.strerror}") from error
        return self._pending.add(command, timeout_s, read)

    def _received(self, report: Report) -> None:
        try:
            if self.ready is None:
                self._begin(report)
            else:
                self._pending.answer(report)
        except replies.UntrueError as lie:
            self._end("untrue", f"the worker {lie}, and was ended")

    def _begin(self, report: Report) -> None:
        if isinstance(report, Ready):
            if len(report.engine_version) + len(report.confinement or "") > _MAX_SHOWN:
                raise replies.UntrueError("has a strange engine")
            self.ready = report
            self.idle_bytes = self.held_bytes()
            pending.resolve(self._started, None)
        elif isinstance(report, Failed):
            pending.reject(self._started, replies.failed(report.failure))
        else:
            raise replies.UntrueError("answered before it was ready")

    def _outcomes(
        self, report: Report, queries: Sequence[Query], form: AnswerForm | None
    ) -> list[Outcome]:
        if not isinstance(report, Ran) or form is None:
            raise replies.UntrueError("answered a batch with something else")
        answers = replies.outcomes(report, queries, form, self._memory)
        self._memory.give_back()
        return answers

    def _overdue(self, problem: str, *models: str) -> None:
        self._end("hung", f"the worker {problem}, and was ended", frozenset(models))

    def _broken(self, problem: str | None) -> None:
        if problem is not None:
            self._end("untrue", f"the worker {problem}, and was ended")
            return
        self._process.exited.add_done_callback(self._exited)
        self._process.bury()
        self._loop.call_later(_END_S, self._end, "untrue", "the worker closed its connection")

    def _exited(self, code: asyncio.Future[int]) -> None:
        message = f"the worker {ending(code.result())}"
        if self.ready is None and (said := self._process.last_words()):
            message += f": {said}"
        if code.result() == -signal.SIGKILL:
            # By the kernel or by hand: what it was at work on need not have to do with it.
            self._end("crashed", message, frozenset(), _NO_MEMORY)
        else:
            self._end("crashed", message)

    def _end(
        self,
        trouble: Trouble | None,
        message: str,
        models: frozenset[str] | None = None,
        hint: str | None = None,
    ) -> None:
        if self.ended.done():
            return
        models = self._pending.models() if models is None else models
        self._forget(Ended(trouble, message, models, hint, self._process.last_words()))
        self._process.kill()

    def _forget(self, ended: Ended) -> None:
        """Gives up everything but the process itself."""
        self.ended.set_result(ended)
        self._channel.close()
        self._memory.close()
        pending.reject(self._started, ended.error())
        self._pending.fail(ended.error)
