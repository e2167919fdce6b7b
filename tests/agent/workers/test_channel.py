"""The daemon's end of a socket: whole messages in order, whatever the kernel makes of them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from edge_agent.errors import BadInputError
from edge_agent.workers.channel import Channel
from edge_agent.workers.protocol import (
    MAX_MESSAGE_BYTES,
    MAX_REPORT_BYTES,
    Command,
    Done,
    Item,
    LoadModel,
    ProbeModel,
    Ready,
    Report,
    RunBatch,
)

from .daemon_side import LOOPS, Loop, open_descriptors, run, sealed


class Ends:
    """A channel, and the child's end of its socket."""

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair()
        self.received: list[Report] = []
        self.broken: list[str | None] = []
        self._news = asyncio.Event()
        self.channel = Channel(ours, self._take, self._break)

    def _take(self, report: Report) -> None:
        self.received.append(report)
        self._news.set()

    def _break(self, problem: str | None) -> None:
        self.broken.append(problem)
        self._news.set()

    async def until(self, received: int = 0, broken: int = 0) -> None:
        while len(self.received) < received or len(self.broken) < broken:
            self._news.clear()
            await self._news.wait()


@asynccontextmanager
async def ends() -> AsyncIterator[Ends]:
    before = open_descriptors()
    both = Ends()
    with both.theirs:
        yield both
        both.channel.close()
        both.channel.close()
    assert open_descriptors() == before


def frame(report: Report) -> bytes:
    data = msgspec.msgpack.encode(report)
    return len(data).to_bytes(4, "little") + data


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("step", [1, 3, 7, 100, 100_000])
def test_messages_arrive_whole_however_they_are_cut(step: int, loop: Loop) -> None:
    reports: list[Report] = [Ready("x" * 50), Done(1), Ready("y" * 70_000), Done(2), Done(3)]

    async def main() -> None:
        async with ends() as both:
            data = b"".join(map(frame, reports))
            for start in range(0, len(data) if step > 50 else 300, step):
                both.theirs.send(data[start : start + step])
                await asyncio.sleep(0)
            if step <= 50:
                rest = data[-(-300 // step) * step :]
                await asyncio.to_thread(both.theirs.sendall, rest)
            await both.until(received=len(reports))
            assert both.received == reports

    run(main(), loop)


NESTED = b"\x83\xa4type\xa4done\xa2id\x01\xa1x" + b"\x91" * 10_000 + b"\1"
DEEP = len(NESTED).to_bytes(4, "little") + NESTED

GARBAGE = [
    ((MAX_REPORT_BYTES + 1).to_bytes(4, "little"), "a message of 8388609 bytes"),
    (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
    (b"\0\0\0\0", "a message that is none"),
    (b"\1\0\0\0\xc1", "a message that is none"),
    (b"\3\0\0\0\x91\x91\x91", "a message that is none"),
    (frame(Done(1))[:-1] + b"\xc1", "a message that is none"),
    (frame(Ready("ab")).replace(b"ab", b"\xff\xfe"), "a message that is none"),
    (b"\5\0\0\0\xdd\xff\xff\xff\xff", "a message that is none"),  # an array of 2**32 - 1
    (DEEP, "a message that is none"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("data", "problem"), GARBAGE)
def test_what_is_no_message_closes_the_channel_once(data: bytes, problem: str, loop: Loop) -> None:
    async def main() -> None:
        async with ends() as both:
            both.theirs.sendall(frame(Done(7)) + data + frame(Done(8)))
            await both.until(broken=1)
            assert both.received == [Done(7)]
            assert problem in str(both.broken[0])
            assert len(str(both.broken[0])) < 200
            both.channel.send(ProbeModel(1, "m"))  # nobody hears it
            await asyncio.sleep(0.01)
            assert len(both.broken) == 1

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rest", [b"", b"\x10", b"\x10\0\0\0abc"])
def test_the_end_of_the_child_is_told_once(rest: bytes, loop: Loop) -> None:
    async def main() -> None:
        async with ends() as both:
            both.channel.send(ProbeModel(1, "m"))
            both.theirs.sendall(frame(Done(7)) + rest)
            both.theirs.close()  # with unread data: the other end sees a reset
            both.channel.send(ProbeModel(2, "m"))
            await both.until(broken=1)
            assert both.broken == [None]
            assert both.received == [Done(7)]

    run(main(), loop)


def _receive(child: socket.socket, count: int) -> tuple[list[Command], list[bytes]]:
    """Reads commands as the child does, with what the descriptors hold."""
    data = bytearray()
    descriptors: list[int] = []
    commands: list[Command] = []
    contents: list[bytes] = []
    while len(commands) < count:
        more, some, _, _ = socket.recv_fds(child, 65536, 253)
        data += more
        descriptors += some
        while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "little")):
            command: Command = msgspec.msgpack.decode(data[4 : 4 + size], type=Command)
            files = len(command.files) if isinstance(command, LoadModel) else 0
            end = 4 + size - (-files // 253)
            if len(data) < end:
                break
            assert not any(data[4 + size : end])
            del data[:end]
            commands.append(command)
            taken, descriptors = descriptors[:files], descriptors[files:]
            for one in taken:
                contents.append(os.read(one, 100))  # from the beginning, wherever ours stands
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.write(one, b"x")
                os.close(one)
    assert not descriptors
    return commands, contents


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("files", [0, 1, 253, 254, 600])
def test_descriptors_follow_their_command_through_a_full_socket(files: int, loop: Loop) -> None:
    names = tuple(f"{n}" for n in range(files))
    long = RunBatch(1, "m" * 300_000, ())
    load = LoadModel(2, "m", "acme/m", "1.0.0", b"x" * 50_000, "onnx", names)
    commands: list[Command] = [long, load, ProbeModel(3, "m"), long, load, ProbeModel(4, "n")]

    async def main() -> None:
        async with ends() as both:
            for one in commands:
                own = [sealed(name.encode()) for name in names] if one is load else []
                both.channel.send(one, own)
                for descriptor in own:
                    os.close(descriptor)
                own = [sealed(b"another file") for _ in own]  # which gets the same numbers
                for descriptor in own:
                    os.close(descriptor)
            got, contents = await asyncio.to_thread(_receive, both.theirs, len(commands))
            assert got == commands
            assert contents == [name.encode() for name in names] * 2
            both.channel.send(ProbeModel(5, "m"))
            assert _receive(both.theirs, 1)[0] == [ProbeModel(5, "m")]

    run(main(), loop)


def test_what_was_not_sent_is_closed_with_the_channel() -> None:
    async def main() -> None:
        async with ends() as both:
            both.channel.send(RunBatch(1, "m" * 1_000_000, ()))
            own = sealed(b"")
            both.channel.send(LoadModel(2, "m", "m", "1", b"", "onnx", ("a", "b")), [own, own])
            os.close(own)

    run(main(), LOOPS[0])


def test_a_command_that_is_too_large_is_refused_and_the_next_is_sent() -> None:
    async def main() -> None:
        async with ends() as both:
            item = Item("outputs", (), (), None, ("x" * MAX_MESSAGE_BYTES,))
            with pytest.raises(BadInputError):
                both.channel.send(RunBatch(1, "m", (item,)))
            both.channel.send(ProbeModel(2, "m"))
            assert _receive(both.theirs, 1)[0] == [ProbeModel(2, "m")]

    run(main(), LOOPS[0])


def test_a_descriptor_that_is_none_fails_that_command_alone() -> None:
    async def main() -> None:
        async with ends() as both:
            own = sealed(b"")
            with pytest.raises(OSError, match="No such file"):
                both.channel.send(LoadModel(1, "m", "m", "1", b"", "onnx", ("a", "b")), [own, -1])
            os.close(own)
            both.channel.send(ProbeModel(2, "m"))
            assert _receive(both.theirs, 1)[0] == [ProbeModel(2, "m")]

    run(main(), LOOPS[0])
