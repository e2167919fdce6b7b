"""Serves the fake service in a process of its own: by hand, for clients, for measurements.

python serving.py unix PATH
python serving.py tcp TOKENS_FILE      prints the port
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque
from pathlib import Path

from edge_agent.memory_allocator import reuse_large_buffers
from edge_agent.serve_config import ServeConfig, TcpConfig
from edge_agent.server import sockets, tokens
from edge_agent.server.apps import bodies, data_app
from edge_agent.server.auth import NetworkAccess, Tenants
from edge_agent.server.listeners import HttpServer, Listener, event_loop, listen

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.agent.server.fakes import FakeService, local


async def main(kind: str, place: Path) -> None:
    config = ServeConfig()
    shared = bodies(config)
    service = FakeService()
    service.calls = deque(maxlen=1)
    if kind == "unix":
        listener = listen(data_app(service, shared, local(), bytes), place)
    else:
        tcp = TcpConfig(port=0)
        access = NetworkAccess(tcp, lambda: tokens.read(place), Tenants(dict))
        app = data_app(service, shared, access, lambda: b"up 1\n")
        listener = Listener(app, sockets.tcp_socket(tcp))
    server = HttpServer([listener], config.max_connections)
    await server.start()
    port = listener.socket.getsockname()[1] if kind == "tcp" else 0
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await server.stop(1.0)


if __name__ == "__main__":
    reuse_large_buffers()
    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main(sys.argv[1], Path(sys.argv[2])))
