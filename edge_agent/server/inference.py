"""Operations that run models."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from edge_agent import answers
from edge_agent.calls import Query
from edge_agent.errors import BadInputError
from edge_agent.server import json_bodies, uploads, v1_replies, v1_requests, v2_replies, v2_requests
from edge_agent.server.codings import pack
from edge_agent.server.datatypes import count, numbers
from edge_agent.server.replies import Reply, json_reply
from edge_agent.server.watching import while_wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.calls import Reply as Given
    from edge_agent.server.exchange import Exchange
    from edge_agent.server.parts import Parts

MAX_TOP_K: Final = 1000
_TOP_K = re.compile(r"^[1-9][0-9]{0,3}\Z")


async def infer(parts: Parts, exchange: Exchange) -> Reply:
    """Answers an inference request of protocol v2."""
    status = parts.status(exchange.target)
    body = await parts.bodies.read(exchange)
    length = exchange.headers.get(b"inference-header-content-length")
    asked = v2_requests.read(body, length, status)
    on_queued = partial(parts.bodies.release, exchange)
    call = exchange.call(asked.query, asked.priority, asked.timeout_s, on_queued)
    given = await while_wanted(exchange, parts.service.infer(call))
    spec = None
    if asked.classified and status.description:
        spec = status.description.output(asked.classified)
    reply = v2_replies.reply(asked, given, spec)
    return reply if exchange.caller.is_local else await _packed(reply, exchange)


async def infer_image(parts: Parts, exchange: Exchange) -> Reply:
    """Answers for one image file."""
    status = parts.status(exchange.target)
    top_k = _top_k(exchange.query_parameters().get("top_k"))
    if v2_requests.description_of(status).preprocess is None:
        raise BadInputError(
            f"the model {status.ref.name} takes no image",
            hint=f"send its tensors to /v2/models/{status.ref.name}/infer",
        )
    body = await parts.bodies.read(exchange)
    image = await uploads.image(body, exchange.headers.get(b"content-type"))
    query = Query("labels", images=(image,), top_k=top_k)
    call = exchange.call(query, on_queued=partial(parts.bodies.release, exchange))
    given = await while_wanted(exchange, parts.service.infer(call))
    reply = json_reply(_document(given))
    reply.headers.extend(v2_replies.meaning(given))
    return reply if exchange.caller.is_local else await _packed(reply, exchange)


async def predict(parts: Parts, exchange: Exchange) -> Reply:
    """Answers instances of protocol v1."""
    status = parts.status(exchange.target)
    body = await parts.bodies.read(exchange)
    description = v2_requests.description_of(status)
    queries, rows = await v1_requests.read(body, description, status.batches)
    given = await while_wanted(exchange, _all(parts, exchange, queries))
    reply = json_reply({"predictions": v1_replies.predictions([one.answer for one in given], rows)})
    reply.headers.extend(v2_replies.meaning(given[0]))
    return reply if exchange.caller.is_local else await _packed(reply, exchange)


async def _all(parts: Parts, exchange: Exchange, queries: Sequence[Query]) -> list[Given]:
    """Has every query answered; where one fails, none of the others is waited for."""
    on_queued = partial(parts.bodies.release, exchange)
    calls = [exchange.call(query, on_queued=on_queued) for query in queries]
    if len(calls) == 1:
        return [await parts.service.infer(calls[0])]
    key = calls[0].idempotency_key
    # A key has no spaces: nobody else's is one of these.
    keys = [f"{key} {at}" if key else None for at in range(len(calls))]
    calls = [
        structs.replace(call, idempotency_key=key) for call, key in zip(calls, keys, strict=True)
    ]
    tasks = [asyncio.ensure_future(parts.service.infer(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _packed(reply: Reply, exchange: Exchange) -> Reply:
    """Packs a reply that goes over the network; on this machine it would only cost time."""
    await pack(reply, exchange.headers.get(b"accept-encoding"))
    return reply


def _top_k(given: str | None) -> int | None:
    if given is None:
        return None
    if not _TOP_K.match(given) or int(given) > MAX_TOP_K:
        raise BadInputError(f"top_k takes 1 to {MAX_TOP_K}")
    return int(given)


def _document(given: Given) -> dict[str, Any]:
    answer = given.answer
    json_bodies.check_answer(sum([count(one) for one in answer.outputs]))
    outputs = [
        answers.output(one.name, one.dtype, one.shape, numbers(one.data, one.dtype))
        for one in answer.outputs
    ]
    return answers.document(
        None,
        given.model,
        given.engine,
        answer.labels[0] if answer.labels else (),
        outputs,
        answer.confident[0] if answer.confident else None,
        answer.timings_ms,
        cached=given.is_cached,
    )
