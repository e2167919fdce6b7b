"""A service that answers without models, and what else the server needs around it."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import structs

from edge_agent.calls import Answer, Call, OutputTensor, Reply
from edge_agent.description import (
    Classification,
    EngineFile,
    ModelDescription,
    Preprocess,
    Raw,
    TensorSpec,
)
from edge_agent.errors import ModelNotFoundError, ModelNotReadyError
from edge_agent.server.auth import SocketAccess, Tenants
from edge_agent.serving.service import Duration, ModelStatistics, ModelStatus, State
from edge_agent.types import ModelRef, ScoredLabel

COUNTED = struct.pack("<1000f", *range(1000))
DIGEST = "sha256:" + "0" * 64


def raw(
    name: str, inputs: dict[str, tuple[int | str, ...]], outputs: dict[str, tuple[int | str, ...]]
) -> ModelDescription:
    """Describes a model of float32 tensors."""
    return ModelDescription(
        schema="edge-agent/model/v1",
        name=name,
        version="1.0.0",
        task="test",
        inputs=tuple(TensorSpec(name=k, dtype="float32", shape=v) for k, v in inputs.items()),
        outputs=tuple(TensorSpec(name=k, dtype="float32", shape=v) for k, v in outputs.items()),
        engines=(EngineFile(engine="onnx", file="weights/model.onnx"),),
        postprocess=Raw(),
    )


NET = raw("demo/net", {"image": (1, 3, 224, 224)}, {"scores": (1, 1000)})
PAIR = raw("demo/pair", {"a": (1, 2), "b": (1, 1)}, {"sum": (1, 2), "mean": (1, 1)})
BATCHED = raw("demo/batched", {"x": ("n", 2)}, {"y": ("n", 2)})
OPEN = raw("demo/open", {"x": (1, "length")}, {"y": (1, "length")})
COLOUR = structs.replace(
    raw("acme/colour", {"image": (1, 3, 8, 8)}, {"scores": (1, 3)}),
    inputs=(TensorSpec(name="image", dtype="float32", shape=(1, 3, 8, 8), layout="NCHW"),),
    preprocess=Preprocess(input="image", color="RGB"),
    postprocess=Classification(output="scores", activation="softmax", labels="labels.json"),
)
MODELS = (COLOUR, BATCHED, NET, OPEN, PAIR)
LABELS = (ScoredLabel(1, "green", 0.75), ScoredLabel(0, "red", 0.2), ScoredLabel(2, "blue", 0.05))


def status(description: ModelDescription, state: State = "READY", reason: str = "") -> ModelStatus:
    """Returns a model as a service tells of it."""
    ref = ModelRef(description.name, description.version, DIGEST)
    return ModelStatus(
        ref,
        state,
        reason,
        True,
        "onnx",
        description,
        any(isinstance(axis, str) for axis in description.inputs[0].shape[:1]),
    )


class FakeService:
    """Answers every call with values 0, 1, 2, …, or with what it is told to.

    Args:
        models: What it has.
    """

    def __init__(self, models: Sequence[ModelDescription] = MODELS) -> None:
        self.described = tuple(models)
        self.statuses = [status(one) for one in models]
        self.calls: deque[Call] = deque(maxlen=200)
        self.changes: list[tuple[str, str, str | None]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.ready = True
        self.value: Callable[[Call, int], float] | None = None

    def is_ready(self) -> bool:
        return self.ready

    def models(self) -> Sequence[ModelStatus]:
        return self.statuses

    def model(self, name: str, version: str | None) -> ModelStatus:
        for one in self.statuses:
            if name in (one.ref.name, *one.aliases) and version in (None, one.ref.version):
                return one
        raise ModelNotFoundError(f"there is no model {name!r}")

    def statistics(self, name: str | None, version: str | None) -> Sequence[ModelStatistics]:
        chosen = self.statuses if name is None else [self.model(name, version)]
        one = Duration(2, 3_000_000)
        return [
            ModelStatistics(s.ref, 5, 2, 1, one, one, one, one, one, one, one, one) for s in chosen
        ]

    async def infer(self, call: Call) -> Reply:
        self.calls.append(call)
        status = self.model(call.model, call.version)
        self.entered.set()
        if call.on_queued is not None:
            call.on_queued()
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if self.error is not None:
            raise self.error
        if status.state != "READY":
            raise ModelNotReadyError(f"{call.model} isn't loaded")
        return Reply(self._answer(call, status), status.ref, status.engine, queue_ms=0.25)

    async def load(self, name: str, version: str | None) -> ModelStatus:
        self.changes.append(("load", name, version))
        if self.error is not None:
            raise self.error
        return self.model(name, version)

    async def unload(self, name: str, version: str | None) -> None:
        self.model(name, version)
        self.changes.append(("unload", name, version))

    def _answer(self, call: Call, status: ModelStatus) -> Answer:
        timings = {"prepare": 1.0, "infer": 2.5, "answer": 0.5}
        assert status.description is not None
        rows = _rows(call)
        is_classifier = isinstance(status.description.postprocess, Classification)
        if call.query.wants == "labels" and is_classifier:
            labels = LABELS[: call.query.top_k or len(LABELS)]
            return Answer((labels,) * rows, (), (True,) * rows, timings)
        outputs = tuple(
            self._output(spec, call, rows)
            for spec in status.description.outputs
            if not call.query.outputs or spec.name in call.query.outputs
        )
        return Answer((), outputs, (), timings)

    def _output(self, spec: TensorSpec, call: Call, rows: int) -> OutputTensor:
        length = next((t.shape[-1] for t in call.query.tensors if t.shape), 1)
        lengths = {"n": rows, "length": length}
        shape = tuple(a if isinstance(a, int) else lengths[a] for a in spec.shape)
        count = 1
        for axis in shape:
            count *= axis
        if self.value is None:
            return OutputTensor(spec.name, "float32", shape, COUNTED[: 4 * count])
        values = (self.value(call, at) for at in range(count))
        return OutputTensor(spec.name, "float32", shape, struct.pack(f"<{count}f", *values))


def _rows(call: Call) -> int:
    return len(call.query.images) or next(iter(call.query.tensors[0].shape), 1)


def local() -> SocketAccess:
    """Lets everybody in whom the kernel names."""
    return SocketAccess(Tenants(dict))
