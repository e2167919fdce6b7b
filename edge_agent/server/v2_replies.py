"""From an answer to the reply of the Open Inference Protocol v2, in JSON and in bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from edge_agent.errors import EngineFailedError
from edge_agent.server import json_bodies
from edge_agent.server.datatypes import BYTES, DATATYPES, count, numbers
from edge_agent.server.replies import BINARY, JSON, Headers
from edge_agent.server.replies import Reply as HttpReply

if TYPE_CHECKING:
    from edge_agent.calls import OutputTensor, Reply
    from edge_agent.description import TensorSpec
    from edge_agent.server.v2_requests import Asked
    from edge_agent.types import ScoredLabel

_JSON = msgspec.json.Encoder()


def reply(asked: Asked, given: Reply, spec: TensorSpec | None) -> HttpReply:
    """Returns the reply to an inference request.

    Args:
        asked: How the outputs are wanted.
        given: The answer.
        spec: The output that is wanted as classes.

    Raises:
        BadInputError: The answer is too large for JSON.
        EngineFailedError: The answer lacks an output.
    """
    document: dict[str, Any] = {
        "model_name": given.model.name,
        "model_version": given.model.version,
    }
    if asked.id is not None:
        document["id"] = asked.id
    parts: list[bytes] = []
    if spec is not None:
        wanted = asked.outputs[0].parameters.binary_data
        is_binary = asked.is_binary if wanted is None else wanted
        document["outputs"] = [_classes(spec, given.answer.labels, parts if is_binary else None)]
    else:
        document["outputs"] = _outputs(asked, given.answer.outputs, parts)
    head = _JSON.encode(document)
    headers = meaning(given)
    if not parts:
        return HttpReply(head, 200, JSON, headers)
    headers.append((b"inference-header-content-length", b"%d" % len(head)))
    return HttpReply(b"".join((head, *parts)), 200, BINARY, headers)


def meaning(given: Reply) -> Headers:
    """Returns the headers that tell how an answer came about."""
    timings = "".join([f", {stage};dur={ms:.3f}" for stage, ms in given.answer.timings_ms.items()])
    return [
        (b"edge-agent-engine", given.engine.encode()),
        (b"edge-agent-cache", b"hit" if given.is_cached else b"miss"),
        (b"server-timing", f"queue;dur={given.queue_ms:.3f}{timings}".encode()),
    ]


def _outputs(
    asked: Asked, outputs: Sequence[OutputTensor], parts: list[bytes]
) -> list[dict[str, Any]]:
    chosen = _chosen(asked, outputs)
    json_bodies.check_answer(sum([count(one) for one, is_binary in chosen if not is_binary]))
    return [_output(one, is_binary, parts) for one, is_binary in chosen]


def _chosen(asked: Asked, outputs: Sequence[OutputTensor]) -> list[tuple[OutputTensor, bool]]:
    """Returns the outputs that are wanted, and of each whether as bytes."""
    if not asked.outputs:
        return [(one, asked.is_binary) for one in outputs]
    by_name = {one.name: one for one in outputs}
    chosen = []
    for one in asked.outputs:
        if one.name not in by_name:
            raise EngineFailedError(f"the answer lacks output {one.name!r}")
        wanted = one.parameters.binary_data
        chosen.append((by_name[one.name], asked.is_binary if wanted is None else wanted))
    return chosen


def _output(one: OutputTensor, is_binary: bool, parts: list[bytes]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": one.name,
        "datatype": DATATYPES[one.dtype],
        "shape": one.shape,
    }
    if is_binary:
        made["parameters"] = {"binary_data_size": len(one.data)}
        parts.append(one.data)
    else:
        made["data"] = numbers(one.data, one.dtype)  # NaN and infinity become null
    return made


def _classes(
    spec: TensorSpec, rows: Sequence[Sequence[ScoredLabel]], parts: list[bytes] | None
) -> dict[str, Any]:
    """Makes strings ``score:index:label``, as Triton's classification extension does."""
    texts = [f"{one.score:f}:{one.index}:{one.label}" for row in rows for one in row]
    best = len(rows[0]) if rows else 0
    shape = [len(rows), best] if len(spec.shape) > 1 else [best]
    made: dict[str, Any] = {"name": spec.name, "datatype": BYTES, "shape": shape}
    if parts is None:
        made["data"] = texts
        return made
    encoded = (text.encode("utf-8", "replace") for text in texts)
    data = b"".join(struct.pack("<I", len(one)) + one for one in encoded)
    made["parameters"] = {"binary_data_size": len(data)}
    parts.append(data)
    return made
