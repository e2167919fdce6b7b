"""How much time is lost to a lack of memory, CPU or I/O: the kernel's pressure stall information.

Source: Linux Documentation/accounting/psi.rst and admin-guide/cgroup-v2.rst. Kernels without it
(or started with ``psi=0``), and whatever can't be read or parsed, give None.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from edge_profiles import cgroups

RESOURCES: Final = ("cpu", "io", "memory")


class Pressure(NamedTuple):
    """Shares of the last ten seconds, in percent.

    Attributes:
        some: In which something waited.
        full: In which everything that wanted to run waited; None where the kernel doesn't say.
    """

    some: float
    full: float | None


def of_machine(resource: str, root: Path = Path("/")) -> Pressure | None:
    """Returns the whole machine's pressure.

    Args:
        resource: One of `RESOURCES`.
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
    """
    return _parsed(cgroups.read_text(root / "proc/pressure" / resource))


def of_group(resource: str, root: Path = Path("/")) -> Pressure | None:
    """Returns the pressure in this process's control group, or the nearest one above that tells.

    A group may be short of memory by its own limit, on a machine that has plenty.

    Args:
        resource: One of `RESOURCES`.
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
    """
    for directory in cgroups.directories(root, ""):
        found = _parsed(cgroups.read_text(directory / f"{resource}.pressure"))
        if found is not None:
            return found
    return None


def _parsed(text: str) -> Pressure | None:
    shares = {}
    for line in text.splitlines():
        kind, _, fields = line.partition(" ")
        share = _share(fields.split())
        if share is not None:
            shares[kind] = share
    return Pressure(shares["some"], shares.get("full")) if "some" in shares else None


def _share(fields: list[str]) -> float | None:
    """Returns the field ``avg10``, in percent."""
    for field in fields:
        name, _, value = field.partition("=")
        whole, _, parts = value.partition(".")
        if name == "avg10" and (whole + parts).isdigit() and value.isascii() and len(value) < 16:
            return min(float(value), 100.0)
    return None
