"""Our daemon and its peers: how each is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from serving.connections import Server, ask, free_port, tcp, unix
from serving.environments import scripts
from serving.http import head
from serving.processes import started
from serving.questions import MODEL

PEERS = Path(__file__).parent / "peers"
_READY_S = 90.0


class Daemon(NamedTuple):
    """How `edge-agent serve` is run.

    Attributes:
        agent: The command.
        folder: Its configuration, state and sockets; made where there is none.
        cache_mib: The key ``mib`` of ``[cache]``.
    """

    agent: Path
    folder: Path
    cache_mib: int = 64

    @property
    def socket(self) -> str:
        """The data socket."""
        return str(self.folder / "run" / "data.sock")

    @property
    def environment(self) -> dict[str, str]:
        """Where daemon and clients find it."""
        places = {"CONFIG": "config", "STATE": "state", "RUNTIME": "run"}
        return {f"EDGE_AGENT_{key}_DIR": str(self.folder / name) for key, name in places.items()}

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Starts it and waits until the demo's model is ready."""
        for name in ("config", "state", "run"):
            (self.folder / name).mkdir(0o700, parents=True, exist_ok=True)
        (self.folder / "config" / "config.toml").write_text(
            f'engine = "onnx"\nthreads = 1\n[cache]\nmib = {self.cache_mib}\n[serve]\n'
        )
        with started([self.agent, "serve"], self.environment, self.folder) as process:
            server = Server(process.pid, unix(self.socket))
            _wait(server, f"/v2/models/{MODEL}/ready", process, self.folder)
            yield server


@contextmanager
def noop(folder: Path) -> Iterator[Server]:
    """Starts the responder that does nothing."""
    place = str(folder / "noop.sock")
    with started([sys.executable, PEERS / "noop.py", place], {}, folder) as process:
        server = Server(process.pid, unix(place))
        _wait(server, "/", process, folder)
        yield server


class MLServer(NamedTuple):
    """MLServer, and where it listens for gRPC."""

    server: Server
    grpc_port: int


@contextmanager
def mlserver(folder: Path) -> Iterator[MLServer]:
    """Starts MLServer with the model in its own process, which is faster than a worker's."""
    commands = scripts("mlserver")
    rest, grpc, metrics = (free_port() for _ in range(3))
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": rest,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
        "gzip_enabled": False,
        "grpc_max_message_length": 16 << 20,
    }
    model = {"name": "demo", "implementation": "mlserver_model.Demo"}
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    environment = {"PYTHONPATH": str(PEERS)}
    with started([commands / "mlserver", "start", "."], environment, folder) as process:
        server = Server(process.pid, tcp(rest))
        _wait(server, "/v2/models/demo/ready", process, folder)
        yield MLServer(server, grpc)


@contextmanager
def litserve(folder: Path) -> Iterator[Server]:
    """Starts LitServe."""
    python = scripts("litserve") / "python"
    port = free_port()
    folder.mkdir()
    with started([python, PEERS / "litserve_app.py", str(port)], {}, folder) as process:
        server = Server(process.pid, tcp(port))
        _wait(server, "/health", process, folder)
        yield server


def _wait(server: Server, path: str, process: subprocess.Popen[str], folder: Path) -> None:
    end = monotonic() + _READY_S
    request = (head("GET", path, {}, 0),)
    while monotonic() < end and process.poll() is None:
        try:
            if ask(server, request).status == 200:
                return
        except OSError:
            pass
        sleep(0.05)
    log = (folder / "log").read_text(errors="replace")[-2000:]
    raise SystemExit(f"{process.args!r} is not ready:\n{log}")
