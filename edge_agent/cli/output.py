"""What commands print: plain lines, JSON documents, tables, and a progress bar on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Progress = Callable[[int, int], None]


def line(text: str) -> None:
    """Prints a line of the answer; control characters are made visible."""
    print(printable(text))  # noqa: T201


def plain(text: str) -> None:
    """Prints text of our own, as it is."""
    print(text)  # noqa: T201


def notice(text: str) -> None:
    """Prints a line about the work on standard error."""
    print(f"edge-agent: {printable(text)}", file=sys.stderr)  # noqa: T201


def document(value: Any) -> None:
    """Prints one JSON document on one line."""
    print(json.dumps(value))  # noqa: T201


def printable(text: str) -> str:
    """Escapes what could steer a terminal: names of files and labels are other people's text."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; cells may wrap on a narrow terminal but are never cut."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, title_justify="left")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(shown)


@contextmanager
def progress(what: str) -> Iterator[Progress | None]:
    """Shows a progress bar on a terminal: yields a callback (bytes done, bytes in all)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        "{task.description}",
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(what)
        yield lambda done, total: bar.update(task, completed=done, total=total)
