"""A child that does what it is told: its engine, models and images are code that it executes.

It runs as a module of its own, and imports no engine. Code may set ``is_quiet``, so that the usual
reply isn't sent.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import Any

import msgspec

from edge_agent.workers.protocol import (
    Answered,
    Command,
    Done,
    Failed,
    Failure,
    LoadModel,
    ProbeModel,
    Ran,
    Ready,
    Refused,
    Report,
    RunBatch,
    Span,
    TensorPart,
)
from edge_agent.workers.tensor_memory import TensorMemory
from edge_agent.workers.work import Loaded

stream: socket.socket
memory: TensorMemory
codes: dict[str, bytes] = {}


def send(report: Report) -> None:
    send_frame(msgspec.msgpack.encode(report))


def send_frame(data: bytes) -> None:
    stream.sendall(len(data).to_bytes(4, "little") + data)


def kill(number: int) -> None:
    """Ends by a signal."""
    os.kill(os.getpid(), number)
    signal.pause()


def receive() -> Command | None:
    size = int.from_bytes(_exactly(4), "little")
    command: Command = msgspec.msgpack.decode(_exactly(size), type=Command)
    if isinstance(command, LoadModel) and command.files:
        _, descriptors, _, _ = socket.recv_fds(stream, 1, 253)
        for one in descriptors:
            os.close(one)
    return command


def _exactly(size: int) -> bytes:
    data = stream.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        os._exit(0)
    return data


def part(data: bytes, **changed: Any) -> TensorPart:
    """An output that is right, but for what is changed."""
    whole = TensorPart("y", "uint8", (len(data),), memory.put(data))
    return msgspec.structs.replace(whole, **changed)


def answered(*outputs: TensorPart, **changed: Any) -> Answered:
    timings = {"prepare": 0.1, "infer": 0.2, "answer": 0.3}
    return msgspec.structs.replace(Answered((), outputs, (), timings), **changed)


def reply(command: Command) -> Report:
    """The usual one: a batch gets its tensors back."""
    if isinstance(command, LoadModel):
        return Done(command.id, Loaded(1.0, True, "stand-in 1"))
    if not isinstance(command, RunBatch):
        return Done(command.id)
    used = [one.span for item in command.items for one in item.tensors]
    memory.reset(max((one.offset + one.size for one in used), default=0))
    return Ran(command.id, tuple(answered(*item.tensors) for item in command.items))


def code_of(command: Command) -> bytes:
    if isinstance(command, RunBatch):
        images = [one for item in command.items for one in item.images]
        return b"\n".join(bytes(memory.view(one)) for one in images)
    if isinstance(command, LoadModel):
        codes[command.digest] = command.description
    return codes.get(command.digest, b"")


def main() -> None:
    names: dict[str, Any] = dict(globals()) | {"is_quiet": False}
    exec(sys.argv[1], names)
    if not names["is_quiet"]:
        send(Ready("stand-in 1"))
    while (command := receive()) is not None:
        names |= {"command": command, "is_quiet": False}
        exec(code_of(command), names)
        if not names["is_quiet"]:
            send(reply(command))


if __name__ == "__main__":
    stream, memory = socket.socket(fileno=int(sys.argv[2])), TensorMemory(int(sys.argv[3]))
    main()

__all__ = ["Failed", "Failure", "ProbeModel", "Refused", "Span", "time"]
