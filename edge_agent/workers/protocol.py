"""Messages between the daemon and one worker process.

MessagePack, each preceded by its length (4 bytes, little-endian), on a pair of Unix stream sockets.
Tensors, images and outputs don't travel in messages: they lie in the worker's `TensorMemory`, and a
message has their spans. Descriptors of a model's files follow their `LoadModel`: one byte 0 for
each 253 of them, in their order, with these as SCM_RIGHTS.

A worker is started as ``python -P -m edge_agent.workers.child ENGINE SOCKET MEMORY SETTINGS``: the
numbers of two inherited descriptors, and `ChildSettings` as JSON.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from edge_agent.calls import Wants
from edge_agent.types import ScoredLabel
from edge_agent.workers.work import Loaded

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
# Far beyond 100,000 labels. A report can take fifteen times as much memory when it is decoded, and
# the daemon does nothing else meanwhile (0.2 s): so what a child may send is less than it may get.
MAX_REPORT_BYTES: Final = 8 * 1024 * 1024
# Source: SCM_MAX_FD in the kernel's include/net/scm.h; unix(7).
MAX_DESCRIPTORS: Final = 253

_Natural = Annotated[int, Meta(ge=0)]


class Span(Struct, frozen=True, array_like=True):
    """A part of the tensor memory.

    Attributes:
        offset: Of its first byte, a multiple of 64.
        size: In bytes.
    """

    offset: _Natural
    size: _Natural


class TensorPart(Struct, frozen=True, array_like=True):
    """An input or output tensor; see `InputTensor` and `OutputTensor`."""

    name: str
    dtype: str
    shape: tuple[_Natural, ...]
    span: Span
    is_json: bool = False


class Item(Struct, frozen=True, array_like=True):
    """One query of a batch; see `Query`."""

    wants: Wants
    tensors: tuple[TensorPart, ...]
    images: tuple[Span, ...]
    top_k: int | None
    outputs: tuple[str, ...]


class ChildSettings(Struct, frozen=True):
    """What a worker is told when it starts.

    Attributes:
        threads: Threads of the engine.
        max_image_bytes: The largest image file that is taken.
        max_image_pixels: The largest image that is decoded.
        memory_limit_mib: Memory that it may use beside its engine's code, in MiB; None means all.
        nice: Added to its niceness.
        cpus: Numbers of the CPUs that it may use; empty means all.
        parent_pid: The daemon: the worker ends with it.
    """

    threads: int
    max_image_bytes: int
    max_image_pixels: int
    memory_limit_mib: int | None
    nice: int
    cpus: tuple[int, ...]
    parent_pid: int


class LoadModel(Struct, frozen=True, tag="load"):
    """Load a model, run its golden input and compare.

    Attributes:
        id: Number of the command; its reply has the same.
        digest: What `RunBatch` will call it.
        name: Bundle name.
        version: Semantic version.
        description: `ModelDescription` as MessagePack.
        engine: Which engine is to run it.
        files: Names of its files, in the order of the descriptors that follow.
    """

    id: int
    digest: str
    name: str
    version: str
    description: bytes
    engine: str
    files: tuple[str, ...]


class UnloadModel(Struct, frozen=True, tag="unload"):
    """Free a model."""

    id: int
    digest: str


class ProbeModel(Struct, frozen=True, tag="probe"):
    """Run the golden input (or a blank one) and compare: the canary."""

    id: int
    digest: str


class RunBatch(Struct, frozen=True, tag="run"):
    """Answer queries that run together."""

    id: int
    digest: str
    items: tuple[Item, ...]


Command: TypeAlias = LoadModel | UnloadModel | ProbeModel | RunBatch


class Failure(Struct, frozen=True):
    """An `AgentError` on its way.

    Attributes:
        kind: Name of its class in `edge_agent.errors`.
        message: What went wrong.
        path: What it is about.
        hint: What to do next.
    """

    kind: str
    message: str
    path: str | None = None
    hint: str | None = None


class Answered(Struct, frozen=True, tag="answered"):
    """An `Answer`, its outputs in the tensor memory."""

    labels: tuple[tuple[ScoredLabel, ...], ...]
    outputs: tuple[TensorPart, ...]
    confident: tuple[bool, ...]
    timings_ms: dict[str, float]


class Refused(Struct, frozen=True, tag="refused"):
    """One query of a batch failed; the others don't."""

    failure: Failure


class Ready(Struct, frozen=True, tag="ready"):
    """The first message of a worker: its engine is imported.

    Attributes:
        engine_version: Package and version.
        confinement: What the kernel keeps it from, for `doctor` and logs; None where it can't.
    """

    engine_version: str
    confinement: str | None = None


class Done(Struct, frozen=True, tag="done"):
    """A model is loaded, unloaded, or answered its probe rightly."""

    id: int
    loaded: Loaded | None = None


class Ran(Struct, frozen=True, tag="ran"):
    """A batch has been run: one outcome an item, in their order."""

    id: int
    items: tuple[Answered | Refused, ...]


class Failed(Struct, frozen=True, tag="failed"):
    """A command failed as a whole."""

    id: int
    failure: Failure


Report: TypeAlias = Ready | Done | Ran | Failed
