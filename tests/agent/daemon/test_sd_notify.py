"""What the service manager hears, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic_ns

import pytest

from edge_agent.daemon.sd_notify import Notifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest) -> Iterator[tuple[str, socket.socket]]:
    """A socket that listens, and what NOTIFY_SOCKET says of it."""
    with (
        TemporaryDirectory(prefix="ea-") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        name = str(Path(folder) / "notify") if request.param == "path" else f"@{folder}"
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(10)
        yield name, listener


@pytest.mark.parametrize(
    ("say", "heard"),
    [
        (Notifier.ready, b"READY=1"),
        (Notifier.stopping, b"STOPPING=1"),
        (Notifier.alive, b"WATCHDOG=1"),
        (lambda one: one.extend(1.5), b"EXTEND_TIMEOUT_USEC=1500000"),
        (lambda one: one.status("two\nlines"), b"STATUS=two lines"),
    ],
)
def test_says_it(
    manager: tuple[str, socket.socket], say: Callable[[Notifier], None], heard: bytes
) -> None:
    address, listener = manager
    say(Notifier({"NOTIFY_SOCKET": address}))
    assert listener.recv(1000) == heard


def test_a_reload_says_when_it_began(manager: tuple[str, socket.socket]) -> None:
    address, listener = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.ready()
    assert listener.recv(1000) == b"READY=1"
    before = monotonic_ns() // 1000
    notifier.reloading()
    first, _, second = listener.recv(1000).partition(b"\n")
    assert first == b"RELOADING=1"
    key, _, value = second.partition(b"=")
    assert key == b"MONOTONIC_USEC"
    assert before <= int(value) <= monotonic_ns() // 1000
    notifier.reloaded()
    assert listener.recv(1000) == b"READY=1"


def test_a_reload_during_the_start_does_not_say_that_it_is_over(
    manager: tuple[str, socket.socket],
) -> None:
    address, listener = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    notifier.reloading()
    notifier.reloaded()
    notifier.status("it starts")
    assert listener.recv(1000) == b"STATUS=it starts"


@pytest.mark.parametrize("address", ["", "relative", "vsock:2:1234", "/nowhere/at/all", "@nobody"])
def test_a_manager_that_is_not_there_is_no_matter(address: str) -> None:
    Notifier({"NOTIFY_SOCKET": address} if address else {}).ready()


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_whether_it_watches(environment: dict[str, str], seconds: float | None) -> None:
    assert Notifier(environment).watchdog_s == seconds
