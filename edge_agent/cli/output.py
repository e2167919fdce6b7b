"""What commands print: plain lines, JSON documents, tables, and a progress bar on a terminal."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from edge_signing.errors import printable

Progress = Callable[[int, int], None]

_WORTH_A_BAR_BYTES: Final = 64 * 1024 * 1024


def line(text: str) -> None:
    """Prints a line of the answer; control characters are made visible."""
    print(printable(text), flush=True)  # what was answered isn't lost if we are ended


def plain(text: str) -> None:
    """Prints text of our own, as it is."""
    print(text)


def notice(text: str) -> None:
    """Prints a line about the work on standard error, if anybody listens there."""
    _tell(f"edge-agent: {printable(text)}")


def hint(text: str) -> None:
    """Prints what to do next below a notice."""
    _tell(f"  hint: {printable(text)}")


def _tell(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        # A full disk there must not undo the work; the exit code tells as well. What is left in the
        # stream's buffer would fail again and again.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open


def document(value: Any) -> None:
    """Prints one JSON document on one line."""
    print(json.dumps(value), flush=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; cells may wrap on a narrow terminal but are never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(shown)


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
