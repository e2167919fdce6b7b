"""Content codings: ``gzip`` and ``deflate``, of requests and replies.

Source: RFC 9110, sections 8.4.1 and 12.5.3; deflate means the zlib format.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import partial
from typing import Final

from edge_agent.errors import BadInputError
from edge_agent.server.errors import BodyFormatError, BodyTooLargeError
from edge_agent.server.replies import BINARY, Reply

CODINGS: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
_WORTH_BYTES: Final = 1024
_AT_ONCE_BYTES: Final = 16 * 1024  # so much is packed sooner than a thread has begun


async def decoded(body: bytes | bytearray, coding: bytes, max_bytes: int) -> bytes | bytearray:
    """Unpacks a body, in a thread: a small one may become a large one.

    Raises:
        BodyFormatError: It is packed in another way.
        BodyTooLargeError: It would become too large.
        BadInputError: It is damaged.
    """
    name = coding.strip().lower()
    if name == b"identity":
        return body
    if name not in CODINGS:
        raise BodyFormatError("Content-Encoding takes gzip or deflate")
    return await asyncio.to_thread(_unpacked, body, CODINGS[name], max_bytes)


def _unpacked(body: bytes | bytearray, window_bits: int, max_bytes: int) -> bytes:
    unpacking = zlib.decompressobj(window_bits)
    try:
        unpacked = unpacking.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise BadInputError("the packed body is damaged") from error
    if len(unpacked) > max_bytes:
        raise BodyTooLargeError(f"the body becomes larger than {max_bytes >> 20} MiB")
    if not unpacking.eof or unpacking.unused_data:
        raise BadInputError("the packed body is cut short, or something follows it")
    return unpacked


async def pack(reply: Reply, accepted: bytes | None) -> None:
    """Packs the body of a reply, if the client wants that and it is worth it.

    Tensors as bytes aren't: packing takes longer than their inference, and saves a tenth.
    """
    if accepted is None or reply.content_type == BINARY or len(reply.body) < _WORTH_BYTES:
        return
    reply.headers.append((b"vary", b"accept-encoding"))
    name = _wanted(accepted)
    if name is None:
        return
    is_short = len(reply.body) <= _AT_ONCE_BYTES
    work = partial(_packed, reply.body, CODINGS[name])
    reply.body = work() if is_short else await asyncio.to_thread(work)
    reply.headers.append((b"content-encoding", name))


def _packed(body: bytes, window_bits: int) -> bytes:
    packing = zlib.compressobj(1, zlib.DEFLATED, window_bits)
    return packing.compress(body) + packing.flush()


def _wanted(accepted: bytes) -> bytes | None:
    """Returns the coding that the client likes best; None for none of ours."""
    best, best_weight = None, 0.0
    for part in accepted.lower().split(b","):
        name, _, parameter = (text.strip() for text in part.partition(b";"))
        weight = _weight(parameter)
        if name in CODINGS and weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameter: bytes) -> float:
    if not parameter:
        return 1.0
    name, _, value = parameter.partition(b"=")
    try:
        return float(value) if name.strip() == b"q" else 1.0
    except ValueError:
        return 0.0
