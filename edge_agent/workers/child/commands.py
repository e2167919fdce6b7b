"""Does what the daemon asks: runs at once, everything else in a thread beside them."""

from __future__ import annotations

import os
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, NoReturn

from edge_agent.errors import BadInputError, ModelFileError, ModelNotReadyError
from edge_agent.memory_allocator import give_back
from edge_agent.workers.child import batches
from edge_agent.workers.child.model import Model
from edge_agent.workers.child.sealed_contents import SealedContents
from edge_agent.workers.protocol import (
    Command,
    Done,
    Failed,
    LoadModel,
    ProbeModel,
    Ran,
    RunBatch,
    UnloadModel,
)
from edge_signing.errors import SigningError

if TYPE_CHECKING:
    from edge_agent.backends.base import Backend
    from edge_agent.images import ImageLimits
    from edge_agent.workers.child.connection import Connection
    from edge_agent.workers.tensor_memory import TensorMemory
    from edge_agent.workers.work import Loaded


class Commands:
    """The models of one worker.

    Args:
        connection: To the daemon.
        memory: Where tensors lie.
        backend: The engine.
        engine_version: Its package and version.
        limits: The largest images that are taken.
        threads: Threads of the engine.
    """

    def __init__(
        self,
        connection: Connection,
        memory: TensorMemory,
        backend: Backend,
        engine_version: str,
        limits: ImageLimits,
        threads: int,
    ) -> None:
        self._connection = connection
        self._memory = memory
        self._backend = backend
        self._engine_version = engine_version
        self._limits = limits
        self._threads = threads
        self._models: dict[str, Model] = {}
        self._slow: SimpleQueue[tuple[Command, list[int]]] = SimpleQueue()

    def serve(self) -> None:
        """Does what is asked until the daemon closes its end.

        Raises:
            GarbledError: It sends what is no message.
            OSError: The connection is broken.
        """
        Thread(target=self._work_slowly, name="models", daemon=True).start()
        while (received := self._connection.receive()) is not None:
            command, descriptors = received
            if isinstance(command, RunBatch):
                self._report(self._run(command))
            else:
                self._slow.put((command, descriptors))
            del received, command

    def _run(self, command: RunBatch) -> Ran | Failed:
        try:
            model = self._model(command.digest)
            return Ran(command.id, batches.run(model, command.items, self._memory))
        except Exception as error:  # noqa: BLE001 - the next command is not at fault
            return Failed(command.id, batches.failure(error))

    def _report(self, report: Ran | Failed) -> None:
        try:
            self._connection.send(report)
        except (BadInputError, MemoryError) as error:
            self._connection.send(Failed(report.id, batches.failure(error)))

    def _work_slowly(self) -> NoReturn:
        try:
            while True:
                command, descriptors = self._slow.get()
                report = self._do(command, descriptors)
                if not isinstance(command, ProbeModel):
                    # The bytes of a file, a session, or what an engine made before it failed.
                    give_back()
                self._connection.send(report)
        finally:  # nobody hears us any more
            os._exit(1)

    def _do(self, command: Command, descriptors: list[int]) -> Done | Failed:
        try:
            return Done(command.id, self._done(command, descriptors))
        except Exception as error:  # noqa: BLE001 - as above
            return Failed(command.id, batches.failure(error))

    def _done(self, command: Command, descriptors: list[int]) -> Loaded | None:
        if isinstance(command, LoadModel):
            return self._load(command, descriptors)
        if isinstance(command, UnloadModel):
            self._unload(command.digest)
        elif isinstance(command, ProbeModel):
            self._model(command.digest).prove()
        return None

    def _load(self, command: LoadModel, descriptors: list[int]) -> Loaded:
        contents = SealedContents(command, descriptors)
        try:
            model = Model(contents, command.engine, self._backend, self._limits, self._threads)
            loaded = model.try_out(self._engine_version)
            golden = contents.description.golden
            contents.keep([one.file for one in golden.outputs] if golden else [])
        except SigningError as error:
            raise ModelFileError(error.message, path=error.path, hint=error.hint) from error
        finally:
            contents.close()
        self._models[command.digest] = model
        return loaded

    def _unload(self, digest: str) -> None:
        model = self._model(digest)
        del self._models[digest]
        model.close()

    def _model(self, digest: str) -> Model:
        model = self._models.get(digest)
        if model is None:
            raise ModelNotReadyError("the worker doesn't hold the model")
        return model
