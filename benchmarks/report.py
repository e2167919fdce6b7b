"""What every benchmark prints and writes."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One figure."""

    name: str
    value: float
    unit: str
    note: str = ""


def publish(
    rows: list[Row], packages: list[str], file: Path | None, others: Mapping[str, str] = {}
) -> None:
    """Prints a table, and writes JSON with revision, machine and versions where a file is given.

    Args:
        rows: The figures.
        packages: Packages of this environment whose versions matter.
        file: Where the JSON goes.
        others: Versions of what lives in other environments.
    """
    width = max(len(row.name) for row in rows)
    for row in rows:
        print(f"{row.name:<{width}}  {row.value:10.3f} {row.unit:<6}  {row.note}")
    if file is None:
        return
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    ).stdout.strip()
    document = {
        "revision": revision,
        "machine": {
            "arch": platform.machine(),
            "cpu": _cpu(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in packages} | dict(others),
        "rows": [{"name": r.name, "value": round(r.value, 4), "unit": r.unit} for r in rows],
    }
    file.write_text(json.dumps(document, indent=1) + "\n")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
