"""The daemon over a long time, with a tiny model in two versions.

    scripts/soak-serve [--swaps N] [--requests N] [--kills N] [--json FILE]

Three parts: 100 swaps under load (nothing fails, nothing is mixed, each is visible within 100 ms of
its load); many swaps and requests (memory of the last tenth within 5 % of the first); daemon or
worker killed at random (serving again within 3 s, database whole, no wrong answer). Exits with 1
where a bound isn't kept. With the defaults about ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from report import Row, publish

from soaking import parts
from soaking.daemon import Daemon
from soaking.parts import Outcome

PACKAGES: Final = ["edge-agent", "onnxruntime", "starlette", "uvicorn"]
_PARTS: Final = ("swaps", "memory", "kills")


def main() -> None:
    """Runs everything, or what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=2000, metavar="N", help="of the memory part")
    parser.add_argument("--requests", type=int, default=200_000, metavar="N")
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="of the kills")
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=list(_PARTS), metavar="PART")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    run: dict[str, Callable[[Daemon], Outcome]] = {
        "swaps": parts.swaps,
        "memory": lambda daemon: parts.memory(daemon, options.swaps, options.requests),
        "kills": lambda daemon: parts.kills(daemon, options.kills, options.seed),
    }
    rows: list[Row] = []
    breaches: list[str] = []
    for name in options.only:
        print(f"{name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            daemon = Daemon(Path(folder))
            with daemon.running():
                outcome = run[name](daemon)
        rows += outcome.rows
        breaches += outcome.breaches
    publish(rows, PACKAGES, options.json)
    for breach in breaches:
        print(f"breach: {breach}", file=sys.stderr)
    sys.exit(1 if breaches else 0)
