"""The daemon: started, asked to swap, weighed, and killed without warning."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from serving.connections import Server, ask, unix
from serving.http import head
from serving.processes import rss_mib

from soaking.bundles import NAME, make

_READY_S = 60.0
_COMMAND = (sys.executable, "-m", "edge_agent")


class Daemon:
    """`edge-agent serve` with folders of its own.

    Args:
        folder: Its folders; the path is short, for sockets are in it.
    """

    def __init__(self, folder: Path) -> None:
        self.data_socket = str(folder / "run" / "data.sock")
        self._folder = folder
        places = {"CONFIG": "config", "STATE": "state", "RUNTIME": "run"}
        mine = {f"EDGE_AGENT_{key}_DIR": str(folder / name) for key, name in places.items()}
        self._environment = os.environ | mine
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Installs both versions, and serves; nothing runs any more afterwards."""
        for bundle in make(self._folder / "bundles", self._folder / "config"):
            command = [*_COMMAND, "models", "install", str(bundle)]
            subprocess.run(command, env=self._environment, check=True, stdout=subprocess.DEVNULL)
        try:
            self.start()
            self.wait_ready()
            yield
        finally:
            self.stop()

    def start(self) -> None:
        """Starts it; returns at once."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "serve"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_ready(self) -> None:
        """Waits until it serves.

        Raises:
            SystemExit: It doesn't.
        """
        end = monotonic() + _READY_S
        request = (head("GET", "/v2/health/ready", {}, 0),)
        while monotonic() < end:
            with suppress(OSError):
                if ask(self._server(self.data_socket), request).status == 200:
                    return
            sleep(0.02)
        raise SystemExit(f"the daemon is not ready:\n{self._log()}")

    def load(self, version: str) -> None:
        """Makes a version the live one.

        Raises:
            SystemExit: It can't.
        """
        body = json.dumps({"parameters": {"version": version}}).encode()
        request = head("POST", f"/v2/repository/models/{NAME}/load", {}, len(body)), body
        socket = str(self._folder / "run" / "admin.sock")
        answer = ask(self._server(socket), request, 60.0)
        if answer.status != 200:
            raise SystemExit(f"loading {version}: {answer.status} {answer.body!r}\n{self._log()}")

    def workers(self) -> list[int]:
        """Returns the numbers of its workers' processes."""
        pid = self._pid()
        with suppress(OSError):
            return [
                int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            ]
        return []

    def rss_mib(self) -> tuple[float, float]:
        """Returns the resident memory of the daemon, and of its workers together."""
        workers = 0.0
        for pid in self.workers():
            with suppress(OSError, StopIteration):  # it ended meanwhile
                workers += rss_mib(pid)
        return rss_mib(self._pid()), workers

    def kill(self, pid: int | None = None) -> None:
        """Kills a worker; or the daemon, and starts it again at once, as a service manager does."""
        with suppress(ProcessLookupError):
            os.kill(pid or self._pid(), signal.SIGKILL)
        if pid is None and self._process is not None:
            self._process.wait()
            self.start()

    def stop(self) -> int:
        """Ends it in peace, and returns its exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(60)

    def database_is_whole(self) -> bool:
        """Whether SQLite finds no fault with the cache."""
        with closing(sqlite3.connect(self._folder / "state" / "cache.sqlite3")) as database:
            return database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    def _server(self, place: str) -> Server:
        return Server(self._pid(), unix(place))

    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]
