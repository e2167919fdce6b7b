"""Which profile a machine gets, from what its kernel says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_profiles import board
from edge_profiles.detect import cpu_threads, detect, memory_limit_bytes
from edge_profiles.errors import ProfileError
from edge_profiles.selection import SHIPPED, select

from . import machines
from .machines import Tree, container, device_tree, service, without_firmware

Build = Callable[..., Path]
ARM = "aarch64"
RISCV = "riscv64"
X86 = "x86_64"

# Machine, architecture, profile, why, how ONNX Runtime and LiteRT run INT8 there.
BOARDS = [
    (machines.PI4, ARM, "raspberry-pi-4", "raspberrypi,4-model-b", "slow", "slow"),
    (machines.PI400, ARM, "raspberry-pi-4", "raspberrypi,400", "slow", "slow"),
    (machines.CM4, ARM, "raspberry-pi-4", "raspberrypi,4-compute-module", "slow", "slow"),
    (machines.PI5, ARM, "raspberry-pi-5", "raspberrypi,5-model-b", "native", "native"),
    (machines.CM5, ARM, "raspberry-pi-5", "raspberrypi,5-compute-module", "native", "native"),
    (machines.ORIN_NANO, ARM, "jetson-orin-nano", "p3768-0000+p3767-0005", "native", "native"),
    (machines.ORIN_NANO_SUPER, ARM, "jetson-orin-nano", "0005-super", "native", "native"),
    (machines.ORIN_NX, ARM, "generic-arm64", "p3767-0000", "native", "native"),
    (machines.VISIONFIVE2, RISCV, "visionfive-2", "visionfive-2-v1.3b", "slow", "unsupported"),
    (machines.MILKV_MARS, RISCV, "visionfive-2", "starfive,jh7110", "slow", "unsupported"),
    (machines.VISIONFIVE2_LITE, RISCV, "visionfive-2", "visionfive-2-lite", "slow", "unsupported"),
    (machines.SPACEMIT_K1, RISCV, "generic-riscv64", "spacemit,k1-x", "slow", "unsupported"),
    (machines.IMX8MP, ARM, "generic-arm64", "fsl,imx8mp-evk", "slow", "slow"),
    (machines.RK3588, ARM, "generic-arm64", "friendlyarm,nanopc-t6", "native", "native"),
    (machines.GATEWAY, X86, "generic-x86-64", "UP SQUARED 6000", "slow", "slow"),
    (machines.LAPTOP, X86, "generic-x86-64", "20XW005PGE", "native", "native"),
    (machines.VIRTUAL, X86, "generic-x86-64", "Standard PC", "slow", "slow"),
    # A 32-bit kernel on a known board: nothing of the profile would be true.
    (machines.PI4, "armv7l", "generic", "the processor is armv7l", "slow", "slow"),
    (machines.PI4, "armv8l", "generic", "the processor is armv8l", "slow", "slow"),
    ({}, "loongarch64", "generic", "doesn't say what it is", "slow", "slow"),
]


@pytest.mark.parametrize(("tree", "arch", "name", "why", "onnx", "tflite"), BOARDS)
def test_boards(
    build: Build, tree: Tree, arch: str, name: str, why: str, onnx: str, tflite: str
) -> None:
    root = build(tree)
    chosen = select(root=root, arch=arch)
    assert chosen.profile.name == name
    assert why in chosen.reason
    assert chosen.file == SHIPPED / f"{name}.toml"
    matrix = chosen.profile.matrix(detect(root, affinity=4, arch=arch).cpu_features)
    assert [matrix["onnx"]["int8"], matrix["tflite"]["int8"]] == [onnx, tflite]


def test_half_precision_and_its_conversion(build: Build) -> None:
    for tree, fp16 in ((machines.PI4, "slow"), (machines.PI5, "native")):
        root = build(tree)
        features = detect(root, arch=ARM).cpu_features
        matrix = select(root=root, arch=ARM).profile.matrix(features)
        assert [row["fp16"] for row in matrix.values()] == [fp16, fp16]
        assert [row["fp32"] for row in matrix.values()] == ["native", "native"]


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        # Its list of CPUs names a Raspberry Pi even there.
        (machines.PI4, "raspberry-pi-4"),
        (machines.PI5, "raspberry-pi-5"),
        (machines.ORIN_NANO, "generic-arm64"),
    ],
)
def test_containers_hide_the_firmware(build: Build, tree: Tree, name: str) -> None:
    root = build(without_firmware(tree), container(str(512 << 20), 250000))
    profile = select(root=root, arch=ARM).profile
    assert profile.name == name
    fitted = profile.fitted(cpu_threads(root, affinity=4), memory_limit_bytes(root))
    assert (fitted.threads, fitted.max_memory_mib) == (2, 384)


def test_a_service_keeps_to_its_limits(build: Build) -> None:
    root = build(machines.PI4, service(str(1 << 30), "100000"))
    profile = select(root=root, arch=ARM).profile
    fitted = profile.fitted(cpu_threads(root, affinity=4), memory_limit_bytes(root))
    assert (fitted.threads, fitted.max_memory_mib) == (1, 768)
    free = build(machines.PI4, service())
    fitted = profile.fitted(cpu_threads(free, affinity=3), memory_limit_bytes(free))
    assert (fitted.threads, fitted.max_memory_mib) == (3, 3885396 * 3 // 4 >> 10)


def test_a_pi_started_by_uefi_is_known_by_dmi(build: Build) -> None:
    root = build({"sys/class/dmi/id/product_name": "Raspberry Pi 4 Model B\n"})
    assert select(root=root, arch=ARM).profile.name == "raspberry-pi-4"


HOSTILE = {
    "missing": None,
    "empty": b"",
    "only ends": b"\0\0\0\0",
    "binary": bytes(range(256)) * 16,
    "huge": b"x" * 5_000_000,
    "huge with names": b"raspberrypi,4-model-c\0" * 100_000,
    "escape": b"raspberrypi,4-model-b\x1b[31m\0",
    "not ended": b"vendor,unknown",
    "quotes": b'"\0]\0arch = \0title\0',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_device_trees_end_in_a_generic_profile(tmp_path: Path, name: str) -> None:
    data = HOSTILE[name]
    for tree in ("proc/device-tree", "sys/firmware/devicetree/base"):
        (tmp_path / tree).mkdir(parents=True)
        if data is not None:
            (tmp_path / tree / "compatible").write_bytes(data)
            (tmp_path / tree / "model").write_bytes(data)
    (tmp_path / "proc/cpuinfo").write_bytes(data or b"")
    (tmp_path / "proc/meminfo").write_bytes(data or b"")
    for arch in (ARM, RISCV, X86, "s390x"):
        chosen = select(root=tmp_path, arch=arch)
        assert chosen.profile.name.startswith("generic")
        assert len(board.names(tmp_path, arch)) <= 33
        detect(tmp_path, affinity=1, arch=arch)


def test_a_folder_in_a_files_place(tmp_path: Path) -> None:
    (tmp_path / "proc/device-tree/compatible").mkdir(parents=True)
    (tmp_path / "proc/cpuinfo").mkdir()
    assert select(root=tmp_path, arch=ARM).profile.name == "generic-arm64"


def test_a_later_name_is_read_where_the_first_is_unknown(build: Build) -> None:
    tree = device_tree("Carrier", "acme,carrier", "raspberrypi,4-compute-module", "brcm,bcm2711")
    chosen = select(root=build(tree), arch=ARM)
    assert (chosen.profile.name, chosen.reason) == (
        "raspberry-pi-4",
        "the board says raspberrypi,4-compute-module",
    )


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "etc/profiles"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, **changes: str) -> None:
    text = (SHIPPED / "generic-arm64.toml").read_text()
    lines = "".join(f"{key} = {value}\n" for key, value in changes.items())
    kept = [line for line in text.splitlines() if line.partition(" =")[0] not in changes]
    (folder / f"{name}.toml").write_text(lines + "\n".join(kept) + "\n")


def test_an_owners_profile_for_a_board_of_theirs(build: Build, own: Path) -> None:
    write(own, "gateway", compatible='["fsl,imx8mp"]', threads="2")
    chosen = select("auto", own, root=build(machines.IMX8MP), arch=ARM)
    assert (chosen.profile.name, chosen.profile.threads) == ("gateway", 2)
    assert chosen.file == own / "gateway.toml"


def test_an_owners_profile_comes_before_the_shipped_one(build: Build, own: Path) -> None:
    root = build(machines.PI4)
    write(own, "mine", compatible='["raspberrypi,4-model-b"]')
    assert select("auto", own, root=root, arch=ARM).profile.name == "mine"
    for mine in ('["brcm,bcm2711"]', '["raspberrypi,4-model-b"]'):
        write(own, "mine", compatible=mine)
        assert select("auto", own, root=root, arch=ARM).profile.name == "mine"
    write(own, "mine", models='["Raspberry Pi 4 Model B"]')
    assert select("auto", own, root=root, arch=ARM).profile.name == "mine"
    # Of two of theirs the one with the more exact name.
    write(own, "also", compatible='["raspberrypi,4-model-b"]')
    assert select("auto", own, root=root, arch=ARM).profile.name == "also"


def test_an_owners_profile_replaces_the_shipped_one_of_its_name(build: Build, own: Path) -> None:
    write(own, "raspberry-pi-4", compatible='["raspberrypi,400"]', threads="3")
    write(own, "generic-arm64", threads="7")
    assert select("raspberry-pi-4", own).profile.threads == 3
    chosen = select("auto", own, root=build(machines.PI4), arch=ARM)
    assert (chosen.profile.name, chosen.profile.threads) == ("generic-arm64", 7)


def test_a_named_profile_is_used_whatever_the_board_is(build: Build) -> None:
    chosen = select("visionfive-2", root=build(machines.PI4), arch=ARM)
    assert (chosen.profile.name, chosen.reason) == ("visionfive-2", "as configured")


@pytest.mark.parametrize("name", ["nowhere", "", "..", "../boards/generic", "Generic", "/etc/x"])
def test_a_name_that_isnt_there(own: Path, name: str) -> None:
    write(own, "mine")
    with pytest.raises(ProfileError) as caught:
        select(name, own)
    assert "there is no device profile" in caught.value.message
    assert "mine" in (caught.value.hint or "")


def test_an_owners_profile_that_is_wrong_is_named(build: Build, own: Path) -> None:
    write(own, "broken", threads="-1")
    (own / ".hidden.toml").write_text("x")
    (own / "notes.txt").write_text("x")
    with pytest.raises(ProfileError, match="threads must be") as caught:
        select("auto", own, root=build(machines.PI4), arch=ARM)
    assert caught.value.path == str(own / "broken.toml")
    assert select("generic", own).profile.name == "generic"


def test_a_file_in_the_folders_place(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("")
    with pytest.raises(ProfileError, match="can't be read: Not a directory"):
        select("auto", tmp_path / "profiles")


def test_the_guard_sees_all_that_is_the_owners(own: Path) -> None:
    write(own, "mine")
    seen: list[Path] = []
    select("mine", own, seen.append)
    assert seen == [own.parent, own, own / "mine.toml"]

    def refuse(path: Path) -> None:
        raise PermissionError(path)

    with pytest.raises(PermissionError):
        select("auto", own, refuse)
    select("generic", None, refuse)


def test_this_machine() -> None:
    assert select().profile.suits(os.uname().machine)


def test_it_imports_little() -> None:
    code = "import sys; from edge_profiles.selection import select; select(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"dataclasses", "inspect", "hashlib"}
