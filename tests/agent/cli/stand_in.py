"""A stand-in for the daemon: takes requests at a Unix socket and answers as it was told."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

MODEL = {"name": "demo/efficientnet-lite0", "version": "1.0.0", "digest": "sha256:" + "a" * 64}
DOCUMENT: dict[str, Any] = {
    "schema": "edge-agent/infer/v1",
    "input": None,
    "model": MODEL,
    "engine": "onnx",
    "labels": [
        {"index": 967, "label": "espresso", "score": 0.949},
        {"index": 504, "label": "coffee mug", "score": 0.0125},
    ],
    "outputs": [],
    "confident": True,
    "timings_ms": {"prepare": 20.1, "infer": 5.2, "answer": 0.3},
}


class Asked(NamedTuple):
    """One request.

    Attributes:
        target: Path and query.
        body: As it came.
        connection: Which connection it came by, counted from 0.
    """

    target: str
    body: bytes
    connection: int


def answer(document: object, status: int = 200, **headers: str) -> bytes:
    """An answer with a JSON body; underscores in headers' names mean hyphens."""
    body = json.dumps(document).encode()
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class StandIn:
    """The stand-in.

    Attributes:
        folder: What EDGE_AGENT_RUNTIME_DIR is to be.
        asked: The requests so far.
    """

    def __init__(self, folder: Path, answers: Sequence[bytes], reads: bool) -> None:
        self.folder = folder
        self.asked: list[Asked] = []
        self._answers = iter(answers)
        self._reads = reads
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "data.sock"))
        self._listener.listen()
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        number = 0
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while self._answer(connection, stream, number):
                    pass
            number += 1

    def _answer(self, connection: socket.socket, stream: BinaryIO, number: int) -> bool:
        """Answers one request; an empty answer ends the connection, none is never sent."""
        asked = _request(stream, number, self._reads)
        if asked is None:
            return False
        self.asked.append(asked)
        data = next(self._answers, b"")
        connection.sendall(data)
        return bool(data) and self._reads


def _request(stream: BinaryIO, number: int, reads: bool) -> Asked | None:
    first = stream.readline()
    length = 0
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not first:
        return None
    body = stream.read(length) if reads else b""
    return Asked(first.split()[1].decode(), body, number)


@contextmanager
def daemon(*answers: bytes, reads: bool = True) -> Iterator[StandIn]:
    """Runs a stand-in that gives these answers, one a request.

    Args:
        answers: In order; when they are used up, and for an empty one, it ends the connection.
        reads: Whether it reads a request's body; one that doesn't ends the connection.
    """
    folder = Path(tempfile.mkdtemp(prefix="ea", dir="/tmp"))  # a socket's path has 107 bytes
    stand_in = StandIn(folder, answers, reads)
    try:
        yield stand_in
    finally:
        stand_in.stop()
        shutil.rmtree(folder)
