"""Progress bars on a terminal, and Ctrl-C while one is shown."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from edge_signing.errors import printable

Progress = Callable[[int, int], None]

_WORTH_A_BAR_BYTES: Final = 64 * 1024 * 1024


@contextmanager
def tidy_interrupt() -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt, where the terminal must be put right again.

    Elsewhere it ends the process at once (`main`): an engine in an endless loop hears nothing
    else, and whatever is on the disk is whole at any moment.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def progress(what: str) -> Iterator[Progress | None]:
    """Shows a progress bar on a terminal, for work on a large bundle.

    Args:
        what: What goes on, such as ``verifying camera.tar``.

    Yields:
        A callback (bytes done, bytes in all); None where there is no terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what)
    try:
        yield bar.advance
    finally:
        bar.stop()


@contextmanager
def counter(what: str) -> Iterator[Progress | None]:
    """Shows on a terminal how many of a number of steps are done.

    Args:
        what: What goes on, such as ``calibrating``.

    Yields:
        A callback (steps done, steps in all); None where there is no terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what, worth=2, in_bytes=False)
    try:
        yield bar.advance
    finally:
        bar.stop()


class _Bar:
    """A bar that appears with the first step of work that is worth one."""

    def __init__(self, what: str, worth: int = _WORTH_A_BAR_BYTES, in_bytes: bool = True) -> None:
        self._what = printable(what)
        self._worth = worth
        self._in_bytes = in_bytes
        self._shown: Any = None

    def advance(self, done: int, total: int) -> None:
        if total < self._worth:
            return
        if self._shown is None:
            self._shown = _new_bar(self._in_bytes)
            self._task = self._shown.add_task(self._what)
            self._interrupt = tidy_interrupt()
            self._interrupt.__enter__()
            self._shown.start()
        self._shown.update(self._task, completed=done, total=total)
        if done >= total:
            self.stop()

    def stop(self) -> None:
        if self._shown is not None:
            self._shown.stop()
            self._shown = None
            self._interrupt.__exit__(None, None, None)


def _new_bar(in_bytes: bool) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
