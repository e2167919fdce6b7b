"""Tells of requests that end before a model is asked: whoever asks models counts the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Refused: TypeAlias = Callable[[int, str], None]
"""Takes the status and the kind of error of a refused request, as its reply has them."""


def uncounted(status: int, kind: str) -> None:
    """Counts nothing."""
