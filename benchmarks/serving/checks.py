"""Before anything is timed: a server answers what the model says, and a hit is one."""

from __future__ import annotations

import numpy as np

from serving.connections import Server, ask
from serving.http import Exchange, Request
from serving.inputs import SHAPE, Source

_CLASSES = 1000
_OK = 200
_PATIENCE = 20


def answers_rightly(server: Server, source: Source) -> None:
    """Compares a server's logits, the last bytes of its answer, with ONNX Runtime's.

    Raises:
        RuntimeError: They differ.
    """
    import bare_infer

    request = source()
    tensor = np.frombuffer(request[-1], np.float32).reshape(SHAPE)
    expected = bare_infer.session().run(None, {"input": tensor})[0][0]
    body = _answered(server, request).body
    given = np.frombuffer(body[-4 * _CLASSES :], np.float32)
    if given.shape != expected.shape or not np.allclose(given, expected, atol=1e-4):
        raise RuntimeError(f"wrong logits: {body[:200]!r}")


def hits_the_cache(server: Server, request: Request) -> None:
    """Asks until the answer comes from the cache, which doesn't keep what is asked once.

    Raises:
        RuntimeError: It never does.
    """
    for _ in range(_PATIENCE):
        head = _answered(server, request).head
        if b"edge-agent-cache: hit" in head.lower():
            return
    raise RuntimeError(f"no hit: {head!r}")


def _answered(server: Server, request: Request) -> Exchange:
    exchange = ask(server, request)
    if exchange.status != _OK:
        raise RuntimeError(f"answered with {exchange.status}: {exchange.body[:200]!r}")
    return exchange
