"""The daemon under load, against bare code and other servers, side by side.

    .venv/bin/python benchmarks/serve.py [--json FILE] [--quick] [--only NAME ...]

The servers run on the first core, the load generator on the second. Both sides of a ratio take
turns in one run, and medians are compared.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from report import Row, publish
from serving import costs, fairness, processes, speed
from serving.environments import VERSIONS
from serving.inputs import Frames, Tensors
from serving.measuring import Bench

PACKAGES: Final = ["edge-agent", "numpy", "onnxruntime", "pillow", "uvicorn", "starlette"]
PARTS: Final[dict[str, Callable[[Bench], list[Row]]]] = {
    "ceiling": speed.ceiling,
    "bare": speed.bare,
    "mlserver": speed.mlserver,
    "litserve": speed.litserve,
    "cache": costs.cache,
    "attainment": fairness.attainment,
    "critical": fairness.critical,
    "memory": costs.memory,
    "client": costs.thin_client,
}
_BUSY = 0.5  # load average
OWN_AGENT: Final = Path(sys.executable).with_name("edge-agent")


def main() -> None:
    """Runs everything, or what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="two minutes, rougher")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--agent", type=Path, default=OWN_AGENT, help="another edge-agent")
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("it takes two cores")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for variable in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        os.environ.pop(variable, None)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # as the agent does: for all
    if os.getloadavg()[0] > _BUSY:
        print("the machine seems busy with other work: figures would be rough", file=sys.stderr)
    processes.pin(processes.LOAD_CPU)
    rows: list[Row] = []
    for name in options.only:
        print(f"{name} …", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="serve-") as folder:
            rows += PARTS[name](bench(options, Path(folder)))
    publish(rows, PACKAGES, options.json, VERSIONS)


def bench(options: argparse.Namespace, folder: Path) -> Bench:
    """Returns what a part works with."""
    return Bench(
        agent=options.agent.absolute(),
        folder=folder,
        rounds=2 if options.quick else 7,
        seconds=0.7 if options.quick else 2.0,
        open_loop_s=10.0 if options.quick else 60.0,
        tensors=Tensors(),
        frames=Frames(),
    )


if __name__ == "__main__":
    main()
