"""What this machine is and how much of it this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from edge_profiles import board, cgroups

# Arm's and others' implementer and part numbers.
# Source: Linux arch/arm64/include/asm/cputype.h; util-linux sys-utils/lscpu-arm.c.
_ARM_CORES: Final = {
    ("0x41", "0xc07"): "Cortex-A7",
    ("0x41", "0xc08"): "Cortex-A8",
    ("0x41", "0xc09"): "Cortex-A9",
    ("0x41", "0xc0f"): "Cortex-A15",
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd04"): "Cortex-A35",
    ("0x41", "0xd05"): "Cortex-A55",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd09"): "Cortex-A73",
    ("0x41", "0xd0a"): "Cortex-A75",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd0d"): "Cortex-A77",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd41"): "Cortex-A78",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd46"): "Cortex-A510",
    ("0x41", "0xd47"): "Cortex-A710",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4d"): "Cortex-A715",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd80"): "Cortex-A520",
    ("0x41", "0xd81"): "Cortex-A720",
    ("0x4e", "0x004"): "Carmel",
}


class Machine(NamedTuple):
    """A machine, as far as it decides which engine is fast and what fits.

    Attributes:
        arch: The kernel's name of the architecture: ``x86_64``, ``aarch64``, ``riscv64``, ...
        cpu_model: Marketing name, core names joined by ``+``, or micro-architecture; else None.
        board: What the device tree, DMI or the kernel calls the product; else None.
        cpu_features: Instruction set extensions that every CPU has, sorted.
        cpus: Threads that this process may use at a time.
        memory_mib: Memory that this process may use; None where it isn't known.
        kernel: The kernel's release.
    """

    arch: str
    cpu_model: str | None
    board: str | None
    cpu_features: tuple[str, ...]
    cpus: int
    memory_mib: int | None
    kernel: str

    def fingerprint(self, *extra: str) -> str:
        """Returns 16 hex digits that change when measured speeds no longer hold.

        Args:
            *extra: What else decides speed, such as ``onnxruntime 1.23.0``; the order is ignored.
        """
        from hashlib import sha256

        features = " ".join(self.cpu_features)
        parts = (self.arch, self.cpu_model or "", features, str(self.cpus), *sorted(extra))
        # Netstrings: no two lists of parts read the same.
        encoded = (part.encode("utf-8", "surrogateescape") for part in parts)
        return sha256(b"".join(b"%d:%b," % (len(part), part) for part in encoded)).hexdigest()[:16]


def detect(
    root: Path = Path("/"),
    affinity: int | None = None,
    *,
    arch: str | None = None,
    kernel: str | None = None,
) -> Machine:
    """Returns what this machine is.

    Args:
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
        affinity: CPUs that this process may run on; None asks the kernel.
        arch: The kernel's name of the architecture; None asks the kernel.
        kernel: The kernel's release; None asks the kernel.
    """
    system = os.uname()
    arch = arch or system.machine
    cpus = _cpuinfo(root)
    product = board.product_name(root, arch)
    memory = memory_limit_bytes(root)
    return Machine(
        arch=arch,
        cpu_model=_cpu_model(cpus) or product,
        board=product,
        cpu_features=_features(cpus),
        cpus=cpu_threads(root, affinity),
        memory_mib=None if memory is None else memory >> 20,
        kernel=kernel or system.release,
    )


def cpu_threads(root: Path = Path("/"), affinity: int | None = None) -> int:
    """Returns how many threads can run at a time: affinity, or the tightest cgroup quota.

    A quota of 1.5 CPUs gives 1: two busy threads would be stopped for part of every period, and
    each inference would wait for the stopped one.

    Args:
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
        affinity: CPUs that this process may run on; None asks the kernel.

    Returns:
        At least 1.
    """
    allowed = _affinity() if affinity is None else affinity
    return max(1, int(min([allowed, *cgroups.cpu_quotas(root)])))


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Returns physical memory or the tightest cgroup limit; None where neither is known."""
    return _least(_meminfo(root, "MemTotal"), cgroups.memory_limits(root))


def memory_available_bytes(root: Path = Path("/")) -> int | None:
    """Returns what can be allocated now without swapping; None where it isn't known."""
    return _least(_meminfo(root, "MemAvailable"), cgroups.memory_left(root))


def memory_resident_bytes(root: Path = Path("/")) -> int | None:
    """Returns what this process holds of memory; None where it isn't known.

    Source: proc(5), ``/proc/pid/statm``: the second field, in pages.
    """
    words = cgroups.read_text(root / "proc/self/statm").split()
    pages = cgroups.to_number(words[1]) if len(words) > 1 else None
    return None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")


def _least(physical: int | None, limits: Iterable[int]) -> int | None:
    known = [*limits] if physical is None else [physical, *limits]
    return min(known, default=None)


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def _meminfo(root: Path, key: str) -> int | None:
    for line in cgroups.read_text(root / "proc/meminfo").splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == f"{key}:":
            kibibytes = cgroups.to_number(words[1])
            return None if kibibytes is None else kibibytes << 10
    return None


def _cpuinfo(root: Path) -> list[dict[str, str]]:
    """Returns the fields of each CPU, names in lower case."""
    cpus: list[dict[str, str]] = []
    for block in cgroups.read_text(root / "proc/cpuinfo").split("\n\n"):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
        if "processor" in fields:
            cpus.append(fields)
    return cpus


def _cpu_model(cpus: list[dict[str, str]]) -> str | None:
    names = dict.fromkeys(name for cpu in cpus if (name := _core(cpu)))
    return " + ".join(sorted(names)) or None


def _core(cpu: dict[str, str]) -> str | None:
    implementer, part = cpu.get("cpu implementer"), cpu.get("cpu part")
    if implementer and part:
        # On ARM "model name" names only the architecture, so the numbers come first.
        return _ARM_CORES.get((implementer, part)) or f"ARM {implementer}/{part}"
    return cpu.get("model name") or cpu.get("uarch") or cpu.get("isa")


def _features(cpus: list[dict[str, str]]) -> tuple[str, ...]:
    """Returns what all CPUs have: a thread may be moved to any of them."""
    sets = [_features_of(cpu) for cpu in cpus]
    return tuple(sorted(set.intersection(*sets))) if sets else ()


def _features_of(cpu: dict[str, str]) -> set[str]:
    isa = cpu.get("isa", "")
    if isa.startswith("rv"):
        base, *extensions = isa.split("_")
        return {*base.lstrip("rv0123456789"), *extensions}
    return set((cpu.get("flags") or cpu.get("features") or "").split())
