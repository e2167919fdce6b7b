"""What systemd is told. Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from time import clock_gettime_ns
from typing import Final

_CLOCK: Final = 1  # CLOCK_MONOTONIC


class Notifier:
    """Speaks to the service manager, if one listens.

    Args:
        environment: NOTIFY_SOCKET says where; WATCHDOG_USEC and WATCHDOG_PID whether it wants to
            hear regularly that the service is alive.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        microseconds = environment.get("WATCHDOG_USEC", "")
        process = environment.get("WATCHDOG_PID") or str(os.getpid())
        wanted = process == str(os.getpid()) and microseconds.isdecimal() and int(microseconds) > 0
        self.watchdog_s = int(microseconds) / 1e6 if wanted else None
        self._is_ready = False

    def ready(self) -> None:
        """The service answers."""
        self._is_ready = True
        self._send("READY=1")

    def reloading(self) -> None:
        """The configuration is being read again; `reloaded` ends this."""
        if self._is_ready:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={clock_gettime_ns(_CLOCK) // 1000}")

    def reloaded(self) -> None:
        """It was read, or refused; a service that only starts isn't ready by that."""
        if self._is_ready:
            self._send("READY=1")

    def stopping(self) -> None:
        """The service ends."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Says in a line what it does, for `systemctl status`."""
        self._send("STATUS=" + text.replace("\n", " "))

    def extend(self, seconds: float) -> None:
        """Asks for more time to start, reload or stop, counted from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def alive(self) -> None:
        """Keeps the watchdog from ending the service."""
        self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with socket.socket(socket.AF_UNIX, kind) as sender:
            try:
                sender.connect(address)
                sender.send(message.encode())
            except OSError:
                return  # a manager that has gone, or is too busy, is none of the service's matter
