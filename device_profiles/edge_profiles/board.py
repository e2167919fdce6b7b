"""What the firmware calls this board. Whatever can't be read counts as not said."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_TREES: Final = ("proc/device-tree", "sys/firmware/devicetree/base")
_DMI: Final = "sys/class/dmi/id/product_name"
_CPUINFO: Final = "proc/cpuinfo"
_MAX_BYTES: Final = 4096
_MAX_CPUINFO_BYTES: Final = 1 << 20
_MAX_NAMES: Final = 32
_MAX_LENGTH: Final = 128
# What firmware says when nobody filled it in.
_PLACEHOLDERS: Final = frozenset(
    {"", "default string", "system product name", "to be filled by o.e.m.", "not specified"}
)


def names(root: Path, arch: str) -> tuple[str, ...]:
    """Returns what the board is called, the most exact name first.

    These are the device tree's ``compatible`` strings, then the product's name without the
    revision that some boards put behind it.

    Args:
        root: Where ``proc`` and ``sys`` stand.
        arch: The kernel's name of the architecture.

    Source:
        Devicetree Specification v0.4, 2.3.1: "from most specific to most general".
    """
    product = product_name(root, arch)
    found = [*_compatible(root), *([product.partition(" Rev ")[0]] if product else [])]
    return tuple(dict.fromkeys(found))


def product_name(root: Path, arch: str) -> str | None:
    """Returns what the device tree, DMI or the kernel's list of CPUs calls the product."""
    for file in (*(f"{tree}/model" for tree in _TREES), _DMI):
        text = _read(root / file, _MAX_BYTES).strip("\0\r\n ")
        if text.lower() not in _PLACEHOLDERS:
            return text[:_MAX_LENGTH]
    return None if arch in ("x86_64", "i686") else _from_cpuinfo(root)


def _from_cpuinfo(root: Path) -> str | None:
    """Returns the line ``Model`` of a Raspberry Pi: containers hide its device tree.

    Source: raspberrypi/linux arch/arm64/kernel/cpuinfo.c. x86 is never asked: it has another
    ``model``, and its kernel interrupts every CPU to write the file.
    """
    for line in reversed(_read(root / _CPUINFO, _MAX_CPUINFO_BYTES).splitlines()):
        name, colon, value = line.partition(":")
        if colon and name.rstrip() == "Model" and value.strip():
            return value.strip()[:_MAX_LENGTH]
    return None


def _compatible(root: Path) -> list[str]:
    for tree in _TREES:
        found = _read(root / tree / "compatible", _MAX_BYTES).split("\0")
        said = [one for one in found if one and one.isascii() and one.isprintable()]
        if said:
            return said[:_MAX_NAMES]
    return []


def _read(path: Path, max_bytes: int) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(max_bytes).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
