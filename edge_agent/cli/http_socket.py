"""As much HTTP/1.1 as it takes to ask the daemon: POST over a Unix socket.

Source: RFC 9112. Imports next to nothing: this is the thin client's whole network.
"""

from __future__ import annotations

import time
from _socket import AF_UNIX, SOCK_CLOEXEC, SOCK_STREAM, socket

CONNECT_S = 0.5
ANSWER_S = 120.0
MAX_BODY_BYTES = 64 << 20
_MAX_HEAD_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10


class NoAnswerError(Exception):
    """The connection ended, or couldn't be made, before the first byte of an answer."""


class OddAnswerError(Exception):
    """What came back is not an answer that this client understands."""


class Answer:
    """One answer.

    Attributes:
        status: The status code.
        headers: By name in lower case.
        body: The body.
    """

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Connection:
    """One connection, kept from one request to the next.

    Args:
        path: Of the socket.

    Raises:
        NoAnswerError: Nobody listens there, or not to us.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket | None = _connected(path)
        self._has_answered = False

    def close(self) -> None:
        """Ends the connection; the next request makes another."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._has_answered = False

    def post(self, target: str, body: bytes) -> Answer:
        """Sends a request and waits for the answer.

        Args:
            target: Path and query, encoded.
            body: Sent as ``application/octet-stream``.

        Raises:
            NoAnswerError: The other side has gone.
            OddAnswerError: It answers in a way that isn't understood.
            TimeoutError: It doesn't answer.
        """
        if self._has_answered:
            try:
                return self._exchange(target, body)
            except NoAnswerError:
                pass  # the other side may end an idle connection just as it is used again
        return self._exchange(target, body)

    def _exchange(self, target: str, body: bytes) -> Answer:
        if self._socket is None:
            self._socket = _connected(self._path)
        is_kept = False
        try:
            is_sent = _send(self._socket, target, body)
            answer = _Reader(self._socket).answer()
            is_kept = is_sent and answer.headers.get("connection", "").lower() != "close"
        finally:
            if not is_kept:
                self.close()
        self._has_answered = is_kept
        return answer


class _Reader:
    """Reads one answer from a connection."""

    def __init__(self, connection: socket) -> None:
        self._connection = connection
        self._until = time.monotonic() + ANSWER_S
        self._received = bytearray()

    def answer(self) -> Answer:
        end = -1
        while end < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                raise OddAnswerError("its head is too long")
            self._receive()
            end = self._received.find(b"\r\n\r\n")
        status, headers = _parsed(self._received[:end].decode("latin-1"))
        del self._received[: end + 4]
        length = _length(headers)
        while len(self._received) < length:
            self._receive()
        if len(self._received) > length:
            raise OddAnswerError("it is longer than it says")
        return Answer(status, headers, bytes(self._received))

    def _receive(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            more = self._connection.recv(_CHUNK_BYTES)
        except ConnectionResetError:
            more = b""
        if not more and not self._received:
            raise NoAnswerError
        if not more:
            raise OddAnswerError("it breaks off")
        self._received += more


def _connected(path: str) -> socket:
    until = time.monotonic() + CONNECT_S
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC)
    connection.settimeout(CONNECT_S)
    while True:
        try:
            connection.connect(path)
            return connection
        except BlockingIOError:  # many others wait to be let in
            if time.monotonic() < until:
                time.sleep(0.01)
                continue
            connection.close()
            raise NoAnswerError from None
        except (OSError, ValueError) as error:
            connection.close()
            raise NoAnswerError from error


def _send(connection: socket, target: str, body: bytes) -> bool:
    """Sends a request; False where the other side didn't take all of it: it may answer anyway."""
    head = (
        f"POST {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.settimeout(ANSWER_S)
    try:
        connection.sendall(head.encode("ascii"))
        connection.sendall(body)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def _parsed(head: str) -> tuple[int, dict[str, str]]:
    """Returns the status and the headers, by name in lower case."""
    first, *lines = head.split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdigit() or int(status) < 200:
        raise OddAnswerError("it isn't HTTP/1.1")
    fields = (line.partition(":") for line in lines)
    return int(status), {name.lower(): value.strip() for name, _, value in fields}


def _length(headers: dict[str, str]) -> int:
    """Returns the length of the body; one in chunks isn't taken, the daemon never sends any."""
    said = headers.get("content-length", "")
    if "transfer-encoding" in headers or not said.isdigit() or len(said) > 10:
        raise OddAnswerError("it doesn't say how long it is")
    if int(said) > MAX_BODY_BYTES:
        raise OddAnswerError(f"it is longer than {MAX_BODY_BYTES >> 20} MiB")
    return int(said)
