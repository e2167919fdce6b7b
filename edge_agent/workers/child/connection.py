"""The worker's end of the socket: one message after the other, and the descriptors that follow."""

from __future__ import annotations

from array import array
from socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, socket
from threading import Lock
from typing import Final

import msgspec

from edge_agent.errors import BadInputError
from edge_agent.workers.protocol import (
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    MAX_REPORT_BYTES,
    Command,
    LoadModel,
    Report,
)

_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 8 * 1024
_MAX_READ_BYTES: Final = 1024 * 1024
_DESCRIPTOR_BYTES: Final = array("i").itemsize
_ROOM: Final = CMSG_SPACE(MAX_DESCRIPTORS * _DESCRIPTOR_BYTES)


class GarbledError(Exception):
    """What came can't come from the daemon: there is no way to go on."""


class Connection:
    """Messages over a socket. One thread receives; any thread sends.

    Args:
        stream: A blocking Unix stream socket.
    """

    def __init__(self, stream: socket) -> None:
        self._stream = stream
        self._received = bytearray()
        self._waiting: list[int] = []
        self._decoder = msgspec.msgpack.Decoder(Command)
        self._encoder = msgspec.msgpack.Encoder()
        self._sending = Lock()

    def receive(self) -> tuple[Command, list[int]] | None:
        """Waits for the next command.

        Returns:
            The command, and the descriptors of a `LoadModel`, which the caller closes; None where
            the daemon has closed its end.

        Raises:
            GarbledError: It sent no message.
            OSError: The connection is broken.
        """
        message = self._message()
        if message is None:
            return None
        try:
            command: Command = self._decoder.decode(message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise GarbledError(f"no message: {error}") from error
        count = len(command.files) if isinstance(command, LoadModel) else 0
        return command, self._descriptors(count)

    def send(self, report: Report) -> None:
        """Sends a report.

        Raises:
            BadInputError: It is larger than the daemon takes; nothing was sent.
            MemoryError: There is none to encode it; nothing was sent.
            OSError: The connection is broken.
        """
        frame = bytearray()
        self._encoder.encode_into(report, frame, _LENGTH_BYTES)
        size = len(frame) - _LENGTH_BYTES
        if size > MAX_REPORT_BYTES:
            raise BadInputError("the answer is too large", hint="ask for fewer classes, or rows")
        frame[:_LENGTH_BYTES] = size.to_bytes(_LENGTH_BYTES, "little")
        with self._sending:
            self._stream.sendall(frame)

    def _message(self) -> bytes | None:
        if not self._fill(_LENGTH_BYTES):
            if self._received or self._waiting:
                raise GarbledError("something that is no message")
            return None
        size = int.from_bytes(self._received[:_LENGTH_BYTES], "little")
        if size > MAX_MESSAGE_BYTES:
            raise GarbledError(f"a message of {size} bytes")
        return self._take(_LENGTH_BYTES + size)[_LENGTH_BYTES:]

    def _descriptors(self, count: int) -> list[int]:
        """Takes the descriptors that follow a message, and the bytes that carry them."""
        if count:
            self._take(-(-count // MAX_DESCRIPTORS))
        if len(self._waiting) < count:
            raise GarbledError(f"{len(self._waiting)} descriptors instead of {count}")
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _take(self, size: int) -> bytes:
        if not self._fill(size):
            raise GarbledError("a message that ends early")
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _fill(self, size: int) -> bool:
        """Receives until so many bytes are there; False where the daemon has closed its end."""
        while len(self._received) < size:
            wanted = min(max(_READ_BYTES, size - len(self._received)), _MAX_READ_BYTES)
            # Descriptors may come with bytes that were read ahead; without room they'd be lost.
            data, ancillary, _, _ = self._stream.recvmsg(wanted, _ROOM, MSG_CMSG_CLOEXEC)
            for _, _, numbers in ancillary:
                whole = len(numbers) - len(numbers) % _DESCRIPTOR_BYTES
                self._waiting += array("i", numbers[:whole])
            if not data:
                return False
            self._received += data
        return True
