"""Pressure stall information, as kernels write it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_profiles.pressure import RESOURCES, Pressure, of_group, of_machine

Build = Callable[..., Path]
BUSY = (
    "some avg10=12.34 avg60=5.00 avg300=1.00 total=123456\n"
    "full avg10=3.21 avg60=1.00 avg300=0.10 total=23456\n"
)
CALM = BUSY.replace("12.34", "0.00").replace("3.21", "0.00")
GROUP = {
    "proc/self/cgroup": "0::/system.slice/edge.service\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
}
SLICE = "sys/fs/cgroup/system.slice"


@pytest.mark.parametrize("resource", RESOURCES)
def test_machine(resource: str, build: Build) -> None:
    root = build({f"proc/pressure/{resource}": BUSY})
    assert of_machine(resource, root) == Pressure(12.34, 3.21)


def test_cpu_of_older_kernels_has_no_full(build: Build) -> None:
    root = build({"proc/pressure/cpu": BUSY.splitlines()[0] + "\n"})
    assert of_machine("cpu", root) == Pressure(12.34, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n",
        "some\n",
        "some avg60=0.00\n",
        "some avg10=\n",
        "some avg10=.\n",
        "some avg10=nan\n",
        "some avg10=-1.00\n",
        "some avg10=1.0.0\n",
        "some avg10=1e3\n",
        "some avg10=\u0661.\u0660\n",
        "some avg10=" + "9" * 5000 + "\n",
    ],
)
def test_what_says_nothing(text: str, build: Build) -> None:
    assert of_machine("memory", build({"proc/pressure/memory": text})) is None


def test_no_share_is_above_all_of_the_time(build: Build) -> None:
    root = build({"proc/pressure/memory": "some avg10=100.01\n"})
    assert of_machine("memory", root) == Pressure(100.0, None)


def test_absent(build: Build) -> None:
    root = build(GROUP)
    assert (of_machine("memory", root), of_group("memory", root)) == (None, None)


def test_own_group_goes_before_those_above(build: Build) -> None:
    own = {f"{SLICE}/edge.service/memory.pressure": BUSY}
    above = {f"{SLICE}/memory.pressure": CALM}
    assert of_group("memory", build(GROUP, above)) == Pressure(0.0, 0.0)
    assert of_group("memory", build(GROUP, above, own)) == Pressure(12.34, 3.21)


def test_group_in_a_container(build: Build) -> None:
    root = build({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.pressure": BUSY})
    assert of_group("memory", root) == Pressure(12.34, 3.21)
