"""What each machine is told to be, from the texts of `machines`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_profiles.detect import Machine, detect, memory_available_bytes, memory_limit_bytes

from .machines import (
    GATEWAY,
    IMX8MP,
    ORIN_NANO,
    PI4,
    PI5,
    RK3588,
    VIRTUAL,
    VISIONFIVE2,
    Tree,
    without_firmware,
)

Build = Callable[..., Path]


@pytest.mark.parametrize(
    ("tree", "model", "board", "has", "memory_mib"),
    [
        (PI4, "Cortex-A72", "Raspberry Pi 4 Model B Rev 1.4", "crc32", 3794),
        (PI5, "Cortex-A76", "Raspberry Pi 5 Model B Rev 1.0", "asimddp", 8052),
        (ORIN_NANO, "Cortex-A78AE", "NVIDIA Jetson Orin Nano Developer Kit", "asimddp", 7619),
        (VISIONFIVE2, "sifive,u74-mc", "StarFive VisionFive 2 v1.3B", "zbb", 7949),
        (IMX8MP, "Cortex-A53", "NXP i.MX8MPlus EVK board", "asimd", 5787),
        (GATEWAY, "Intel(R) Celeron(R) N5105 @ 2.00GHz", "UP SQUARED 6000", "sse4_1", 15827),
        (VIRTUAL, "AMD EPYC 7B13", "Standard PC (Q35 + ICH9, 2009)", "avx2", 1966),
    ],
)
def test_boards(
    build: Build, tree: Tree, model: str, board: str, has: str, memory_mib: int
) -> None:
    machine = detect(build(tree), affinity=4)
    assert (machine.cpu_model, machine.board) == (model, board)
    assert has in machine.cpu_features
    assert list(machine.cpu_features) == sorted(machine.cpu_features)
    assert (machine.cpus, machine.memory_mib) == (4, memory_mib)
    assert (machine.arch, machine.kernel) == (os.uname().machine, os.uname().release)


def test_architecture_and_kernel_can_be_given(build: Build) -> None:
    machine = detect(build(VISIONFIVE2), arch="riscv64", kernel="6.6.20-starfive")
    assert (machine.arch, machine.kernel) == ("riscv64", "6.6.20-starfive")


def test_a_pi_in_a_container_is_known_by_its_list_of_cpus(build: Build) -> None:
    root = build(without_firmware(PI4))
    assert detect(root, arch="aarch64").board == "Raspberry Pi 4 Model B Rev 1.4"
    assert detect(root, arch="x86_64").board is None


def test_dot_product_tells_a_pi_5_from_a_pi_4(build: Build) -> None:
    old = detect(build(PI4), affinity=4)
    new = detect(build(PI5), affinity=4)
    assert "asimddp" not in old.cpu_features
    assert "asimddp" in new.cpu_features


def test_risc_v_letters_and_extensions(build: Build) -> None:
    features = detect(build(VISIONFIVE2)).cpu_features
    assert set("imafdc") | {"zba", "zbb", "zicsr"} <= set(features)
    assert not {"r", "v", "6", "4", "rv64imafdc"} & set(features)


def test_unlike_cores_are_all_named_and_share_their_features(build: Build) -> None:
    machine = detect(build(RK3588))
    assert machine.cpu_model == "Cortex-A55 + Cortex-A76"
    assert "asimddp" in machine.cpu_features
    assert "ssbs" not in machine.cpu_features


@pytest.mark.parametrize(
    "text", ["", "garbage", "processor", "processor : 0\n", ":::\n\n:\n", "processor : 0\nisa :\n"]
)
def test_a_machine_that_tells_nothing(build: Build, tmp_path: Path, text: str) -> None:
    tree = dict.fromkeys((*PI4, "proc/self/cgroup", "proc/self/mountinfo"), text)
    tree["proc/device-tree/model"] = "\0"
    tree["sys/class/dmi/id/product_name"] = "To Be Filled By O.E.M.\n"
    machine = detect(build(tree), affinity=3)
    assert (machine.cpu_model, machine.board, machine.cpu_features) == (None, None, ())
    assert (machine.cpus, machine.memory_mib) == (3, None)
    assert detect(tmp_path / "nothing", affinity=1).memory_mib is None


def test_files_that_are_not_text(build: Build, tmp_path: Path) -> None:
    build(PI4)
    (tmp_path / "proc/cpuinfo").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "proc/meminfo").unlink()
    (tmp_path / "proc/meminfo").mkdir()
    assert detect(tmp_path, affinity=2).cpus == 2


def test_this_machine() -> None:
    machine = detect()
    assert 1 <= machine.cpus <= len(os.sched_getaffinity(0))
    assert machine.memory_mib is not None
    assert machine.memory_mib > 64
    assert (memory_available_bytes() or 0) <= (memory_limit_bytes() or 0)


MACHINE = Machine("aarch64", "Cortex-A76", "Pi", ("asimd", "asimddp"), 4, 8052, "6.6.1")


def test_the_fingerprint_is_stable() -> None:
    # A new value here makes every device measure again.
    assert MACHINE.fingerprint() == "a6b39df7f3b97c87"
    assert MACHINE.fingerprint("a 1", "b 2") == MACHINE.fingerprint("b 2", "a 1")


def test_the_fingerprint_covers_what_decides_speed_and_nothing_else() -> None:
    same = [
        MACHINE._replace(memory_mib=1),
        MACHINE._replace(kernel="7"),
        MACHINE._replace(board=None),
    ]
    assert {machine.fingerprint() for machine in same} == {MACHINE.fingerprint()}
    other = [
        MACHINE.fingerprint("engine 1"),
        MACHINE.fingerprint("engine 2"),
        MACHINE._replace(arch="riscv64").fingerprint(),
        MACHINE._replace(cpu_model=None).fingerprint(),
        MACHINE._replace(cpu_features=("asimd",)).fingerprint(),
        MACHINE._replace(cpus=2).fingerprint(),
    ]
    assert len({MACHINE.fingerprint(), *other}) == 7


def test_it_imports_little() -> None:
    code = "import sys, edge_profiles.detect; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"platform", "subprocess", "dataclasses", "hashlib", "json", "numpy", "PIL"}
    assert not any(name.startswith("edge_agent") for name in loaded)
