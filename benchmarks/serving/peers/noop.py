"""A responder that does nothing: what it can take is the load generator's own ceiling.

python noop.py SOCKET
"""

from __future__ import annotations

import re
import select
import socket
import sys

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n" + bytes(4000)


class Client:
    """A connection, and how much of its request is missing."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.missing = 0

    def read(self, buffer: bytearray) -> bool:
        """Reads once and answers a request that is whole; returns whether it is still there."""
        try:
            count = self.connection.recv_into(buffer)
        except ConnectionResetError:
            count = 0
        if not count:
            self.connection.close()
            return False
        if not self.missing:
            self.missing = _whole(buffer, count)
        self.missing -= count
        if not self.missing:
            self.connection.sendall(_ANSWER)
        return True


def _whole(buffer: bytearray, count: int) -> int:
    """Returns how long the request is that begins here."""
    end = buffer.index(b"\r\n\r\n", 0, count)
    found = _LENGTH.search(buffer, 0, end)
    return end + 4 + (int(found[1]) if found else 0)


def main() -> None:
    buffer = bytearray(1 << 20)
    clients: dict[int, Client] = {}
    with socket.socket(socket.AF_UNIX) as listener, select.epoll() as poller:
        listener.bind(sys.argv[1])
        listener.listen(64)
        poller.register(listener, select.EPOLLIN)
        while True:
            for descriptor, _ in poller.poll():
                if descriptor == listener.fileno():
                    connection = listener.accept()[0]
                    clients[connection.fileno()] = Client(connection)
                    poller.register(connection, select.EPOLLIN)
                elif not clients[descriptor].read(buffer):
                    del clients[descriptor]


if __name__ == "__main__":
    main()
