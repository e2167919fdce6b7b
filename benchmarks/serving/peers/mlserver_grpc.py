"""Asks MLServer over gRPC, with its own stubs: python mlserver_grpc.py PORT.

Reads ``CLIENTS SECONDS`` lines, answers each with a JSON list of how many nanoseconds each request
took. Requests are serialised beforehand.
"""

import asyncio
import itertools
import json
import sys
from time import perf_counter_ns
from typing import Any

import grpc
import numpy as np
from mlserver.grpc import dataplane_pb2 as protocol

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_REQUESTS = 64


def requests() -> list[bytes]:
    noise = np.random.default_rng(3).random((_REQUESTS, 3 * 224 * 224), np.float32)
    return [request(values.tobytes()) for values in noise * 1.9921875 - 0.9921875]


def request(data: bytes) -> bytes:
    message = protocol.ModelInferRequest(model_name="demo")
    tensor = message.inputs.add(name="images", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(data)
    packed: bytes = message.SerializeToString()
    return packed


async def asked(port: str, packed: Any, clients: int, seconds: float) -> list[int]:
    """Returns how long each request took, in nanoseconds."""
    taken: list[int] = []
    end = perf_counter_ns() + int(seconds * 1e9)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD)

        async def client() -> None:
            while (begun := perf_counter_ns()) < end:
                await call(next(packed))
                taken.append(perf_counter_ns() - begun)

        await asyncio.gather(*(client() for _ in range(clients)))
    return taken


def main() -> None:
    packed = itertools.cycle(requests())
    for line in sys.stdin:
        clients, seconds = line.split()
        taken = asyncio.run(asked(sys.argv[1], packed, int(clients), float(seconds)))
        print(json.dumps(taken), flush=True)


if __name__ == "__main__":
    main()
