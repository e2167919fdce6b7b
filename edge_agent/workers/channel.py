"""Messages to and from a child over a socket: framed, bounded, never waiting."""

from __future__ import annotations

import asyncio
import errno
import os
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from socket import SCM_RIGHTS, SOL_SOCKET, socket
from typing import Final

import msgspec

from edge_agent.errors import BadInputError
from edge_agent.workers.protocol import (
    MAX_DESCRIPTORS,
    MAX_MESSAGE_BYTES,
    MAX_REPORT_BYTES,
    Command,
    Report,
)

_LENGTH_BYTES: Final = 4
_READ_BYTES: Final = 65536
_READS: Final = 16
_SHOWN_CHARACTERS: Final = 100
_GONE: Final = (errno.EPIPE, errno.ECONNRESET)

_Unsent = tuple[bytes, Sequence[int]]


class Channel:
    """The daemon's end.

    It reads and writes the socket itself: a transport of asyncio or uvloop passes no descriptors.

    Args:
        connection: A Unix stream socket; the channel closes it.
        received: Takes each report.
        broken: Called once: why nothing more will come, or None where the child closed its end.
    """

    def __init__(
        self,
        connection: socket,
        received: Callable[[Report], None],
        broken: Callable[[str | None], None],
    ) -> None:
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._socket = connection
        self._descriptor = connection.fileno()
        self._received = received
        self._broken = broken
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Report)
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._chunk = memoryview(bytearray(_READ_BYTES))
        self._unsent: deque[_Unsent] = deque()
        self._loop.add_reader(self._descriptor, self._read)

    def send(self, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Sends a command, as much as the socket takes now and the rest when it can.

        A closed channel sends nothing: whoever closed it knows.

        Args:
            command: The command.
            descriptors: Files that go along, to be read; the caller may close them at once.

        Raises:
            BadInputError: It is too large.
            OSError: A file can't be opened once more.
        """
        if self._descriptor < 0:
            return
        self._encoder.encode_into(command, self._outgoing, _LENGTH_BYTES)
        size = len(self._outgoing) - _LENGTH_BYTES
        if size > MAX_MESSAGE_BYTES:
            self._outgoing = bytearray()
            raise BadInputError("the names in it are longer than a worker takes")
        self._outgoing[:_LENGTH_BYTES] = size.to_bytes(_LENGTH_BYTES, "little")
        if descriptors or self._unsent:
            self._queue(bytes(self._outgoing), descriptors)
            self._flush()
            return
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(error)
            return
        if sent < len(self._outgoing):
            self._queue(bytes(self._outgoing[sent:]), ())

    def close(self) -> None:
        """Closes the socket; the child sees an end of file."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._forget_unsent()
            self._descriptor = -1
            self._socket.close()

    def _queue(self, data: bytes, descriptors: Sequence[int]) -> None:
        # Opened anew: a caller that gives up closes its own, and the numbers would mean other
        # files; a plain copy would share its position with all workers, and each could move it.
        copies: list[int] = []
        try:
            for one in descriptors:
                copies += (os.open(f"/proc/self/fd/{one}", os.O_RDONLY | os.O_CLOEXEC),)
        except OSError:
            _close(copies)
            raise
        if not self._unsent:
            self._loop.add_writer(self._descriptor, self._flush)
        self._unsent.append((data, ()))
        for start in range(0, len(copies), MAX_DESCRIPTORS):
            self._unsent.append((b"\0", copies[start : start + MAX_DESCRIPTORS]))

    def _flush(self) -> None:
        while self._unsent:
            data, descriptors = self._unsent[0]
            rights = [(SOL_SOCKET, SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            try:
                sent = self._socket.sendmsg([data], rights)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            _close(descriptors)
            if sent < len(data):
                self._unsent[0] = (data[sent:], ())
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._descriptor)

    def _fail(self, error: OSError) -> None:
        self._forget_unsent()
        if error.errno not in _GONE:  # the reading side will say how it ended
            self._loop.call_soon(self._give_up, f"can't be spoken to: {error.strerror}")

    def _forget_unsent(self) -> None:
        if self._unsent:
            self._loop.remove_writer(self._descriptor)
        while self._unsent:
            _close(self._unsent.popleft()[1])

    def _read(self) -> None:
        # Until nothing is left: libuv tells of a reset once, and there may be reports before it.
        for _ in range(_READS):
            if self._descriptor < 0:
                return
            try:
                size = self._socket.recv_into(self._chunk)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                size = 0
            self._take(size)
        self._loop.call_soon(self._read)

    def _take(self, size: int) -> None:
        if size == 0:
            self._give_up(None)
            return
        self._incoming += self._chunk[:size]
        try:
            self._take_frames()
        # ValueError: what is no UTF-8; RecursionError: what is nested too deep.
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._give_up(f"sent a message that is none: {str(error)[:_SHOWN_CHARACTERS]!r}")

    def _take_frames(self) -> None:
        incoming, start = self._incoming, 0
        while len(incoming) - start >= _LENGTH_BYTES:
            size = int.from_bytes(incoming[start : start + _LENGTH_BYTES], "little")
            if size > MAX_REPORT_BYTES:
                self._give_up(f"sent a message of {size} bytes, more than {MAX_REPORT_BYTES}")
                return
            end = start + _LENGTH_BYTES + size
            if end > len(incoming):
                break
            with memoryview(incoming) as view, view[start + _LENGTH_BYTES : end] as message:
                report: Report = self._decoder.decode(message)
            start = end
            self._received(report)
            if self._descriptor < 0:
                return
        del incoming[:start]

    def _give_up(self, problem: str | None) -> None:
        if self._descriptor >= 0:
            self.close()
            self._broken(problem)


def _close(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        os.close(one)
