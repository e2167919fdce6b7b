"""What a profile makes of a machine."""

from __future__ import annotations

import pytest

from edge_profiles.profile import DeviceProfile, runs
from edge_profiles.selection import select

MIB = 1 << 20


def shipped(name: str) -> DeviceProfile:
    return select(name).profile


@pytest.mark.parametrize(
    ("name", "cpus", "threads"),
    [
        ("raspberry-pi-4", 4, 4),
        ("raspberry-pi-4", 1, 1),
        ("raspberry-pi-4", 8, 4),
        ("jetson-orin-nano", 6, 6),
        ("generic-arm64", 8, 8),
        ("generic", 64, 64),
    ],
)
def test_threads_are_the_least_of_profile_and_machine(name: str, cpus: int, threads: int) -> None:
    assert shipped(name).fitted(cpus, None).threads == threads


def test_memory_is_a_share_of_what_the_process_may_use() -> None:
    pi = shipped("raspberry-pi-4")
    assert pi.fitted(4, 2000 * MIB).max_memory_mib == 1500
    assert pi.fitted(4, 1).max_memory_mib == 1
    assert pi.fitted(4, None).max_memory_mib is None


@pytest.mark.parametrize(
    ("release", "new_enough"),
    [
        ("5.10.0", True),
        ("5.10", True),
        ("5.9.16", False),
        ("4.19.0-6-arm64", False),
        ("5.15.148-tegra", True),
        ("6.6.31+rpt-rpi-v8", True),
        ("6.1-rc3", True),
        ("10.0.0", True),
        ("", None),
        ("6", None),
        ("six.one", None),
        ("5.x", None),
        ("²5.10", None),
        ("9" * 5000 + ".1", None),
    ],
)
def test_kernels(release: str, new_enough: bool | None) -> None:
    assert shipped("raspberry-pi-4").has_kernel(release) is new_enough


def test_support_depends_on_the_cpu() -> None:
    assert runs("slow", {"asimddp"}) == "slow"
    assert runs("unsupported", ()) == "unsupported"
    assert runs("native", ()) == "native"
    needs = ("asimddp", "i8mm")
    assert [runs(needs, have) for have in (["i8mm"], ["asimd"], [])] == ["native", "slow", "slow"]
