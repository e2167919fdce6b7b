"""Limits of control groups: both versions, nested, in containers, and mixed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_profiles.detect import cpu_threads, memory_available_bytes, memory_limit_bytes

Build = Callable[..., Path]
MIB = 1 << 20
MEMORY = {"proc/meminfo": "MemTotal:        3885396 kB\nMemAvailable:    3321148 kB\n"}
V2 = {
    "proc/self/cgroup": "0::/system.slice/edge.service\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
}
GROUP = "sys/fs/cgroup/system.slice/edge.service"
V1 = {
    "proc/self/cgroup": "11:memory:/app\n4:cpu,cpuacct:/app\n1:name=systemd:/app\n",
    "proc/self/mountinfo": (
        "31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "32 25 0:28 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory\n"
    ),
}
V1_CPU = "sys/fs/cgroup/cpu,cpuacct"


def quota(group: str, micros: int | str, period: int | str = 100000) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{micros}\n", f"{group}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("trees", "threads"),
    [
        ([V2], 8),
        ([V2, {f"{GROUP}/cpu.max": "max 100000\n"}], 8),
        ([V2, {f"{GROUP}/cpu.max": "200000 100000\n"}], 2),
        ([V2, {f"{GROUP}/cpu.max": "150000 100000\n"}], 1),
        ([V2, {f"{GROUP}/cpu.max": "20000 100000\n"}], 1),
        ([V2, {f"{GROUP}/cpu.max": "1600000 100000\n"}], 8),
        ([V2, {"sys/fs/cgroup/system.slice/cpu.max": "300000 100000\n"}], 3),
        (
            [
                V2,
                {f"{GROUP}/cpu.max": "500000 100000\n"},
                {"sys/fs/cgroup/system.slice/cpu.max": "400000 100000\n"},
                {"sys/fs/cgroup/cpu.max": "600000 100000\n"},
            ],
            4,
        ),
        *(
            ([V2, {f"{GROUP}/cpu.max": text}], 8)
            for text in ("", "\n", "100000", "x y", "-1 100000", "1 0", "1 2 3", "9" * 5000 + " 1")
        ),
        ([V1], 8),
        ([V1, quota(f"{V1_CPU}/app", -1)], 8),
        ([V1, quota(f"{V1_CPU}/app", 250000)], 2),
        ([V1, quota(f"{V1_CPU}/app", 50000, 0)], 8),
        ([V1, quota(V1_CPU, 300000), quota(f"{V1_CPU}/app", 700000)], 3),
    ],
)
def test_threads_keep_to_the_tightest_quota(
    build: Build, trees: list[dict[str, str]], threads: int
) -> None:
    assert cpu_threads(build(*trees), affinity=8) == threads


def test_affinity_is_a_limit_too(build: Build) -> None:
    root = build(V2, {f"{GROUP}/cpu.max": "400000 100000\n"})
    assert [cpu_threads(root, affinity=count) for count in (0, 1, 3, 64)] == [1, 1, 3, 4]
    assert cpu_threads(root) == min(4, len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("member", "mount"),
    [
        # A cgroup namespace: the group is the root of what can be seen.
        ("0::/\n", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup ro\n"),
        # No namespace: the mount shows a subtree, named as on the host.
        ("0::/docker/abc\n", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n"),
        # The path is one of the host's that the mount can't show.
        ("0::/kubepods/pod1/abc\n", "30 23 0:26 /other /sys/fs/cgroup ro - cgroup2 cgroup ro\n"),
        # The process was moved out of its namespace's root.
        ("0::/../sibling\n", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup ro\n"),
        # Nothing says where it is mounted.
        ("0::/\n", ""),
    ],
)
def test_containers_v2(build: Build, member: str, mount: str) -> None:
    files = {"proc/self/cgroup": member, "proc/self/mountinfo": mount}
    files |= {"sys/fs/cgroup/cpu.max": "200000 100000\n", "sys/fs/cgroup/memory.max": "268435456\n"}
    root = build(MEMORY, files)
    assert cpu_threads(root, affinity=4) == 2
    assert memory_limit_bytes(root) == 256 * MIB


def test_containers_v1_see_their_own_subtree(build: Build) -> None:
    files = {
        "proc/self/cgroup": "11:memory:/docker/abc/inner\n4:cpu,cpuacct:/docker/abc/inner\n",
        "proc/self/mountinfo": (
            "31 25 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup ro,cpu,cpuacct\n"
            "32 25 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup ro,memory\n"
        ),
        "sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "134217728\n",
    }
    root = build(MEMORY, files, quota(f"{V1_CPU}/inner", 100000))
    assert cpu_threads(root, affinity=4) == 1
    assert memory_limit_bytes(root) == 128 * MIB


def test_hybrid_takes_limits_from_both_versions(build: Build) -> None:
    files = {
        "proc/self/cgroup": V1["proc/self/cgroup"] + "0::/app\n",
        "proc/self/mountinfo": V1["proc/self/mountinfo"]
        + "40 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/unified/app/memory.max": "100000000\n",
        "sys/fs/cgroup/memory/app/memory.limit_in_bytes": "200000000\n",
    }
    root = build(MEMORY, files, quota(f"{V1_CPU}/app", 200000))
    assert cpu_threads(root, affinity=4) == 2
    assert memory_limit_bytes(root) == 100000000


def test_a_mount_point_with_a_space(build: Build) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "30 23 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n",
        "my groups/cpu.max": "100000 100000\n",
    }
    assert cpu_threads(build(files), affinity=4) == 1


def test_memory_without_a_limit_is_the_machines(build: Build) -> None:
    unlimited = {f"{GROUP}/memory.max": "max\n"}
    root = build(MEMORY, V2, unlimited)
    assert memory_limit_bytes(root) == 3885396 << 10
    assert memory_available_bytes(root) == 3321148 << 10
    v1 = {"sys/fs/cgroup/memory/app/memory.limit_in_bytes": "9223372036854771712\n"}
    assert memory_limit_bytes(build(V1, v1)) == 3885396 << 10


def test_memory_left_counts_what_the_kernel_can_drop(build: Build) -> None:
    files = {
        f"{GROUP}/memory.max": f"{512 * MIB}\n",
        f"{GROUP}/memory.current": f"{400 * MIB}\n",
        f"{GROUP}/memory.stat": f"anon {300 * MIB}\ninactive_file {90 * MIB}\nbroken\n",
        "sys/fs/cgroup/system.slice/memory.max": f"{600 * MIB}\n",
        "sys/fs/cgroup/system.slice/memory.current": f"{590 * MIB}\n",
    }
    root = build(MEMORY, V2, files)
    assert memory_limit_bytes(root) == 512 * MIB
    assert memory_available_bytes(root) == 10 * MIB
    (root / "sys/fs/cgroup/system.slice/memory.max").write_text("max\n")
    assert memory_available_bytes(root) == (512 - 310) * MIB
