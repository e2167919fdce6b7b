"""What commands print: plain lines, JSON documents and tables.

Imports next to nothing, since the thin client prints through it.
"""

from __future__ import annotations

import os
import sys

from edge_agent.cli import quick_json
from edge_signing.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


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


def document(value: object) -> None:
    """Prints one JSON document on one line."""
    print(quick_json.encode(value), flush=True)


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
