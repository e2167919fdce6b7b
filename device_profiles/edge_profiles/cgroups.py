"""Limits that control groups set on this process, versions 1 and 2, at every level.

Source: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/; proc(5) on mountinfo.
Whatever can't be read or parsed counts as no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

# Documented mount points, for systems that hide /proc/self/mountinfo.
_USUAL: Final = "/sys/fs/cgroup"


class _Mount(NamedTuple):
    root: str
    point: str


# Controller, and its files: limit, usage, and what of memory.stat the kernel can drop.
_MEMORY: Final = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def read_text(path: Path) -> str:
    """Returns a file's text, empty where it can't be read."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def read_number(path: Path) -> int | None:
    """Returns a file's first word as a number, if it is one."""
    words = read_text(path).split()
    return to_number(words[0]) if words else None


def to_number(word: str) -> int | None:
    """Returns a decimal number of at most 64 bits, or None."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def cpu_quotas(root: Path) -> Iterator[float]:
    """Yields each limit on CPU time that applies, in CPUs; one below 1 is a part of a CPU."""
    for directory in directories(root, ""):
        words = read_text(directory / "cpu.max").split()
        if len(words) == 2:
            yield from _ratio(to_number(words[0]), to_number(words[1]))
    for directory in directories(root, "cpu"):
        quota = read_number(directory / "cpu.cfs_quota_us")
        yield from _ratio(quota, read_number(directory / "cpu.cfs_period_us"))


def memory_limits(root: Path) -> Iterator[int]:
    """Yields each limit on memory that applies, in bytes."""
    for controller, limit, _, _ in _MEMORY:
        for _, most in _limited(root, controller, limit):
            yield most


def memory_left(root: Path) -> Iterator[int]:
    """Yields what each limit leaves, in bytes; file cache that the kernel can drop counts as left.

    Source: the "working set" of Kubernetes: usage without ``inactive_file``.
    """
    for controller, limit, usage, cache in _MEMORY:
        for directory, most in _limited(root, controller, limit):
            used = read_number(directory / usage) or 0
            yield max(0, most - max(0, used - _stat(directory, cache)))


def directories(root: Path, controller: str) -> Iterator[Path]:
    """Yields this process's group in one hierarchy and all of its ancestors that can be seen.

    Args:
        root: The file system's root.
        controller: A controller of version 1, or empty for version 2.
    """
    member = _membership(root, controller)
    if member is None:
        return
    mount = _mount(root, controller)
    point = root / mount.point.lstrip("/")
    parts = _below(member, mount.root)
    for depth in range(len(parts), -1, -1):
        yield point.joinpath(*parts[:depth])


def _limited(root: Path, controller: str, limit: str) -> Iterator[tuple[Path, int]]:
    """Yields each level that has a limit, and the limit in bytes."""
    for directory in directories(root, controller):
        most = read_number(directory / limit)
        if most is not None:
            yield directory, most


def _stat(directory: Path, key: str) -> int:
    for line in read_text(directory / "memory.stat").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key:
            return to_number(words[1]) or 0
    return 0


def _ratio(quota: int | None, period: int | None) -> Iterator[float]:
    if quota and period:
        yield quota / period


def _membership(root: Path, controller: str) -> str | None:
    for line in read_text(root / "proc/self/cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            return fields[2]
    return None


def _below(member: str, mounted: str) -> list[str]:
    """Returns the group's path under the mount point.

    In a container the mount may show a subtree (its root is the group, or an ancestor), or the
    path may be one that only the host can see: then the mount point itself is all there is.
    """
    group = [part for part in member.split("/") if part]
    top = [part for part in mounted.split("/") if part]
    if ".." in group or group[: len(top)] != top:
        return []
    return group[len(top) :]


def _mount(root: Path, controller: str) -> _Mount:
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, dash, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if not dash or len(before) < 6 or len(after) < 3:
            continue
        if controller:
            wanted = after[0] == "cgroup" and controller in after[2].split(",")
        else:
            wanted = after[0] == "cgroup2"
        if wanted:
            return _Mount(_unescaped(before[3]), _unescaped(before[4]))
    return _Mount("/", f"{_USUAL}/{controller}" if controller else _USUAL)


def _unescaped(field: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return field
