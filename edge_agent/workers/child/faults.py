"""A fault of ours in the log: where it happened, and nothing that it may quote of an input."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from typing import Final

_MAX_FRAMES: Final = 16


def tell(error: BaseException) -> None:
    """Prints the kind of an error and its places in the code; the kind comes last."""
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    lines = [f"  {one.filename}:{one.lineno} {one.name}\n" for one in frames]
    lines.append(f"a fault in the worker: {type(error).__name__}\n")
    with suppress(OSError):  # nobody reads the log fast enough
        sys.stderr.write("".join(lines))
        sys.stderr.flush()
