"""A daemon in a process of its own, with folders of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

_READY_S = 40.0


class Daemon:
    """`edge-agent serve`, started and stopped by a test.

    Attributes:
        process: The daemon.
        runtime_dir: Where its sockets are.
        log_file: What it wrote on standard error.
    """

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self.environment = environment
        self.runtime_dir = Path(environment["EDGE_AGENT_RUNTIME_DIR"])
        self.log_file = folder / "daemon.log"
        self.process: subprocess.Popen[bytes]

    def start(self) -> Daemon:
        """Starts it; returns at once."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "edge_agent", "serve"],
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def client(self, *, is_admin: bool = False, timeout: float = 30.0) -> httpx.Client:
        """Makes a client of one of its sockets."""
        name = "admin.sock" if is_admin else "data.sock"
        transport = httpx.HTTPTransport(uds=str(self.runtime_dir / name))
        return httpx.Client(transport=transport, base_url="http://localhost", timeout=timeout)

    def get(self, path: str) -> httpx.Response:
        """Asks the data socket."""
        with self.client() as client:
            return client.get(path)

    def admin(self, method: str, path: str, document: Any = None) -> httpx.Response:
        """Asks the admin socket."""
        with self.client(is_admin=True, timeout=60.0) as client:
            return client.request(method, path, json=document)

    def is_ready(self) -> bool:
        """Whether all models that it should serve are ready."""
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaks one that isn't answered
            probe.settimeout(5)
            try:
                probe.connect(str(self.runtime_dir / "data.sock"))
                probe.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return probe.recv(64).startswith(b"HTTP/1.1 200")
            except OSError:
                return False

    def wait(self, what: Callable[[], bool], timeout_s: float = _READY_S) -> None:
        """Waits until something holds; a daemon that has ended fails the test."""
        deadline = time.monotonic() + timeout_s
        while not what():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def wait_ready(self) -> Daemon:
        """Waits until it serves what it should."""
        self.wait(self.is_ready)
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=30)

    def log(self) -> str:
        """What it wrote."""
        return self.log_file.read_text()

    def events(self, event: str) -> list[dict[str, Any]]:
        """The log's lines of one event."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def children(self) -> list[int]:
        """Process numbers of its workers."""
        pid = self.process.pid
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def wait_gone(self, pids: list[int], timeout_s: float = 10.0) -> None:
        """Waits until processes have ended."""
        deadline = time.monotonic() + timeout_s
        while any(is_alive(pid) for pid in pids):
            assert time.monotonic() < deadline, pids
            time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs, and isn't only waiting to be reaped."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
