"""Drives a real worker process as the daemon does, with blocking calls."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from collections.abc import Mapping, Sequence
from socket import SCM_RIGHTS, SOL_SOCKET, socketpair
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from edge_agent import model_yaml
from edge_agent.workers.protocol import (
    MAX_DESCRIPTORS,
    Answered,
    ChildSettings,
    Command,
    Done,
    Failed,
    Item,
    LoadModel,
    ProbeModel,
    Ran,
    Ready,
    Refused,
    Report,
    RunBatch,
    TensorPart,
    UnloadModel,
)
from edge_agent.workers.tensor_memory import TensorMemory
from tests.agent import models

if TYPE_CHECKING:
    from edge_agent.types import Tensor


class Child:
    """A worker process. Use it as a context manager: it is ended and waited for."""

    def __init__(self, engine: str = "onnx", **settings: Any) -> None:
        given = ChildSettings(1, 1 << 26, 64_000_000, None, 0, (), os.getpid())
        given = msgspec.structs.replace(given, **settings)
        self.memory = TensorMemory.create()
        self.stream, theirs = socketpair()
        self.stream.settimeout(40)
        inherited = (theirs.fileno(), self.memory.descriptor)
        arguments = (engine, *map(str, inherited), msgspec.json.encode(given).decode())
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "edge_agent.workers.child", *arguments],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        self._id = 0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.stream.close()
        self.memory.close()

    def ended(self) -> tuple[int, str]:
        """Waits for its end: the exit code, and what it said."""
        said = self.process.communicate(timeout=40)[1]
        return self.process.returncode, said.decode()

    def ready(self) -> Ready:
        report = self.receive()
        assert isinstance(report, Ready), report
        return report

    def load(
        self, document: models.Yaml, files: Mapping[str, bytes] | None = None, engine: str = "onnx"
    ) -> Done | Failed:
        """Loads a model of `models`, under its name."""
        command, descriptors = self.loading(
            models.bundle_files(document) | {**(files or {})}, engine
        )
        report = self.ask(command, descriptors)
        assert isinstance(report, Done | Failed)
        return report

    def loading(self, files: Mapping[str, bytes], engine: str) -> tuple[LoadModel, list[int]]:
        """What `load` sends."""
        description = model_yaml.parse(files["model.yaml"])
        command = LoadModel(
            self.next_id(),
            description.name,
            description.name,
            description.version,
            msgspec.msgpack.encode(description),
            engine,
            tuple(files),
        )
        return command, [sealed(data) for data in files.values()]

    def unload(self, digest: str) -> Report:
        return self.ask(UnloadModel(self.next_id(), digest))

    def probe(self, digest: str) -> Report:
        return self.ask(ProbeModel(self.next_id(), digest))

    def run(self, digest: str, *items: Item) -> tuple[Answered | Refused, ...]:
        report = self.ask(RunBatch(self.next_id(), digest, items))
        assert isinstance(report, Ran), report
        assert len(report.items) == len(items)
        return report.items

    def item(
        self,
        tensors: Mapping[str, Tensor | TensorPart] | None = None,
        images: Sequence[bytes] = (),
        wants: str = "outputs",
        top_k: int | None = None,
        outputs: tuple[str, ...] = (),
    ) -> Item:
        """Puts the inputs of one query into the memory, behind those that are there."""
        parts = tuple(
            one if isinstance(one, TensorPart) else self.part(name, one)
            for name, one in (tensors or {}).items()
        )
        spans = tuple(self.memory.put(image) for image in images)
        return Item("labels" if wants == "labels" else "outputs", parts, spans, top_k, outputs)

    def part(self, name: str, value: Tensor) -> TensorPart:
        return TensorPart(name, value.dtype.name, value.shape, self.memory.put(value.tobytes()))

    def json_part(self, name: str, text: str, dtype: str, shape: tuple[int, ...]) -> TensorPart:
        return TensorPart(name, dtype, shape, self.memory.put(text.encode()), True)

    def outputs(self, outcome: Answered | Refused) -> dict[str, Tensor]:
        """Returns the outputs of an answer."""
        assert isinstance(outcome, Answered), outcome
        return {
            one.name: np.frombuffer(bytes(self.memory.view(one.span)), one.dtype).reshape(one.shape)
            for one in outcome.outputs
        }

    def next_id(self) -> int:
        self._id += 1
        return self._id

    def ask(self, command: Command, descriptors: Sequence[int] = ()) -> Report:
        self.send(command, descriptors)
        report = self.receive()
        assert not isinstance(report, Ready) and report.id == command.id
        return report

    def send(self, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Sends a command and closes its descriptors. The next batch's inputs begin anew."""
        message = msgspec.msgpack.encode(command)
        self.stream.sendall(len(message).to_bytes(4, "little") + message)
        for start in range(0, len(descriptors), MAX_DESCRIPTORS):
            some = array("i", descriptors[start : start + MAX_DESCRIPTORS])
            self.stream.sendmsg([b"\0"], [(SOL_SOCKET, SCM_RIGHTS, some)])
        for one in descriptors:
            os.close(one)
        self.memory.reset()

    def receive(self) -> Report:
        size = int.from_bytes(self._exactly(4), "little")
        report: Report = msgspec.msgpack.decode(self._exactly(size), type=Report)
        return report

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.stream.recv(size - len(data))
            assert more, (self.process.wait(10), self.process.communicate()[1].decode())
            data += more
        return data


def sealed(data: bytes) -> int:
    """A file of a model as the daemon hands it over."""
    descriptor = os.memfd_create("model", os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    return descriptor
