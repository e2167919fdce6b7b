"""Ends a command whose model never answers: an engine hears nothing while it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Event, Thread
from time import monotonic
from typing import Final

from edge_agent.cli import bars, failures, output

# Far beyond what one input takes anywhere, and near enough for somebody who waits.
STEP_TIMEOUT_S: Final = 600.0
_LOOK_EVERY_S: Final = 0.2


@contextmanager
def watched(what: str, armed: bool = True) -> Iterator[bars.Progress]:
    """Shows progress as `bars.counter` does, and bounds the time of each step.

    A step that takes too long ends the process with the exit code of an engine that failed. Files
    are written when the work is done, and then whole, so that nothing is left half-done.

    Args:
        what: What goes on, such as ``calibrating``.
        armed: Whether the first step begins now; else it begins when no steps are done of some.

    Yields:
        A callback (steps done, steps in all).
    """
    dog = _Watchdog(what)
    if armed:
        dog.start_step()
    try:
        with bars.counter(what) as shown:

            def step(done: int, total: int) -> None:
                if done < total:
                    dog.start_step()
                else:
                    dog.rest()
                if shown:
                    shown(done, total)

            yield step
    finally:
        dog.stop()


class _Watchdog:
    def __init__(self, what: str) -> None:
        self._what = what
        self._done = Event()
        self.rest()
        Thread(target=self._watch, name="edge-agent-watchdog", daemon=True).start()

    def start_step(self) -> None:
        self._until = monotonic() + STEP_TIMEOUT_S

    def rest(self) -> None:
        self._until = inf

    def stop(self) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_EVERY_S):
            if monotonic() >= self._until:
                self._give_up()

    def _give_up(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
        output.notice(f"{self._what}: one input took longer than {STEP_TIMEOUT_S:g} s: gave up")
        output.hint("the model may never end: edge-agent bundle lint looks at it with a deadline")
        os._exit(failures.UNAVAILABLE)
