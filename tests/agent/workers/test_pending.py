"""A worker is late when it is, not when nobody looked."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from edge_agent.workers import pending
from edge_agent.workers.pending import Pending
from edge_agent.workers.protocol import Done, ProbeModel

from .daemon_side import LOOPS, Loop, run

COMMAND = ProbeModel(1, "m")


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_lies_in_the_socket_is_in_time(loop: Loop) -> None:
    async def main() -> None:
        late: list[str] = []
        waiting = Pending(lambda problem, model: late.append(problem))
        near, far = socket.socketpair()
        asyncio.get_running_loop().add_reader(near, lambda: answer(waiting, near))
        told = waiting.add(COMMAND, 0.02, pending.done)
        far.send(b"x")
        time.sleep(0.05)  # the loop is busy with something else
        await told
        assert not late
        asyncio.get_running_loop().remove_reader(near)
        near.close()
        far.close()

    run(main(), loop)


def answer(waiting: Pending, near: socket.socket) -> None:
    near.recv(1)
    waiting.answer(Done(1))


@pytest.mark.parametrize("loop", LOOPS)
def test_while_the_machine_stands_still_no_time_passes(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "_STOOD_STILL_S", 0.02)

    async def main() -> None:
        late: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = Pending(lambda problem, model: late.set_result(problem))
        told = waiting.add(COMMAND, 0.1, pending.done)
        time.sleep(0.3)  # a pause of all processes, as a snapshot makes
        for _ in range(3):
            await asyncio.sleep(0)
        waiting.answer(Done(1))
        await told
        assert not late.done()
        waiting.add(COMMAND, 0.1, pending.done)
        assert await late == "took longer than 0.1 s for a golden input"

    run(main(), loop)
