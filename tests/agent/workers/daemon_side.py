"""What stands around workers in the daemon: models, work to do, and who is told what."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import deque
from collections.abc import Callable, Container, Coroutine, Sequence
from pathlib import Path
from struct import pack, unpack
from typing import Any, TypeVar

import msgspec

from edge_agent import model_yaml
from edge_agent.calls import Answer, InputTensor, Priority, Query
from edge_agent.workers.answer_form import AnswerForm, OutputForm, answer_form
from edge_agent.workers.settings import WorkerSettings
from edge_agent.workers.work import Batch, ModelFiles, Outcome
from tests.agent import models

Loop = Callable[[], asyncio.AbstractEventLoop]
try:
    import uvloop

    LOOPS: list[Loop] = [
        asyncio.new_event_loop,
        uvloop.new_event_loop,
    ]
except ImportError:  # there is none for this machine
    LOOPS = [asyncio.new_event_loop]

# Of the stand-in's answers.
FORM = AnswerForm({"y": OutputForm("uint8", (None,), 1, True)}, frozenset({"y"}))
SETTINGS = WorkerSettings("onnx", 1 << 26, 64_000_000)
_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T], loop: Loop) -> _T:
    """Runs a coroutine on one of the `LOOPS`, within the time of a test."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(work, 50))


def sealed(data: bytes) -> int:
    descriptor = os.memfd_create("edge-agent-test")
    os.write(descriptor, data)
    return descriptor


def model_files(document: models.Yaml, **changed: bytes) -> ModelFiles:
    """The files of a model of `models`; its name is its digest."""
    files = models.bundle_files(document)
    files |= {name.replace("_", "."): data for name, data in changed.items()}
    description = model_yaml.parse(files.pop("model.yaml"))
    return ModelFiles(
        description.name,
        description.name,
        description.version,
        msgspec.msgpack.encode(description),
        "onnx",
        {name: sealed(data) for name, data in files.items()},
        answer_form(description),
    )


def scripted(digest: str, code: str = "", files: int = 1) -> ModelFiles:
    """The files of a model of the stand-in; it executes the code when it loads or probes it."""
    contents = {f"{n}": sealed(b"") for n in range(files)}
    return ModelFiles(digest, digest, "1.0.0", code.encode(), "stand-in", contents, FORM)


def saying(code: str, *values: int) -> Query:
    """Has the stand-in execute code, and give some bytes back."""
    tensor = InputTensor("y", "uint8", (len(values),), bytes(values))
    return Query("outputs", (tensor,), (code.encode(),))


def close(files: ModelFiles) -> None:
    for one in files.files.values():
        os.close(one)


def row(*values: float) -> Query:
    """Asks `models.ROWS`."""
    data = pack("<2f", *values)
    return Query("outputs", (InputTensor("x", "float32", (1, 2), data),))


def product(*values: float) -> Query:
    """Asks `models.PAIR` to multiply values with two."""
    left = InputTensor("left", "float32", (1, 4), pack("<4f", *values))
    right = InputTensor("right", "float32", (1, 4), pack("<4f", 2, 2, 2, 2))
    return Query("outputs", (left, right))


def image(colour: tuple[int, int, int]) -> Query:
    """Asks `models.COLOUR`."""
    return Query("labels", images=(models.png(colour),), top_k=1)


def numbers(outcome: Outcome) -> list[float]:
    """Returns the values of the only output of an answer."""
    assert isinstance(outcome, Answer), outcome
    data = outcome.outputs[0].data
    return list(unpack(f"<{len(data) // 4}f", data))


class Work:
    """A `WorkSource` that is as plain as can be.

    Attributes:
        taken: How many batches workers have got.
    """

    def __init__(self) -> None:
        self.taken = 0
        self._waiting: deque[tuple[Batch, Priority]] = deque()
        self._changed = asyncio.Event()

    async def next_batch(self, models: Container[str], classes: Container[Priority]) -> Batch:
        while True:
            for one in self._waiting:
                if one[0].model in models and one[1] in classes:
                    self._waiting.remove(one)
                    self.taken += 1
                    self._changed.set()
                    return one[0]
            self._changed.clear()
            await self._changed.wait()

    def models_changed(self) -> None:
        self._changed.set()

    async def until(self, happened: Callable[[], object]) -> None:
        """Waits for what workers do with batches and models."""
        while not happened():
            self._changed.clear()
            await self._changed.wait()

    async def ask(
        self,
        model: str,
        *queries: Query,
        timeout_s: float = 20.0,
        priority: Priority = Priority.NORMAL,
    ) -> Sequence[Outcome]:
        """Has a batch run, and returns what came of it."""
        done: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()

        def take(outcomes: Sequence[Outcome]) -> None:
            if not done.done():  # whoever asked was cancelled
                done.set_result(outcomes)

        self._waiting.append((Batch(model, queries, timeout_s, take), priority))
        self._changed.set()
        return await done


class Told:
    """Implements `PoolEvents`: keeps what it is told."""

    def __init__(self) -> None:
        self.failed: list[tuple[str | None, str]] = []
        self.recycled: list[str] = []
        self.lost: dict[str, Exception] = {}
        self._news = asyncio.Event()

    def on_worker_failed(self, digest: str | None, reason: str) -> None:
        self.failed.append((digest, reason))
        self._news.set()

    def on_recycled(self, reason: str) -> None:
        self.recycled.append(reason)
        self._news.set()

    def on_model_lost(self, digest: str, error: Exception) -> None:
        self.lost[digest] = error
        self._news.set()

    async def until(self, happened: Callable[[], object]) -> None:
        """Waits for what it is told of."""
        while not happened():
            self._news.clear()
            await self._news.wait()


def open_descriptors() -> list[str]:
    """What this process has open: what leaks shows up, memory too."""
    gc.collect()  # what an earlier test left behind isn't this one's
    found = []
    for one in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(one.readlink()).partition(":")[0])
        except FileNotFoundError:  # the folder itself
            continue
    return sorted(found)


def children() -> str:
    """Numbers of this process's children, zombies too."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()
