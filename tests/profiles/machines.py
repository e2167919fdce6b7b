"""What the kernels of known machines say in /proc and /sys.

Device trees, lists of CPUs and their form are those of the machines; serial numbers, bogomips and
the exact memory vary from one to the next and are made up.
"""

from __future__ import annotations

Tree = dict[str, str]


def _arm64(cpus: int, features: str, part: str, variant: str, revision: int, top: str = "") -> str:
    block = (
        "processor\t: {}\n" + top + "BogoMIPS\t: 108.00\n"
        f"Features\t: {features}\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        f"CPU variant\t: {variant}\nCPU part\t: {part}\nCPU revision\t: {revision}\n\n"
    )
    return "".join(block.format(number) for number in range(cpus))


def _memory(total_kib: int, available_kib: int) -> str:
    return (
        f"MemTotal:       {total_kib:>8} kB\nMemFree:        {available_kib // 2:>8} kB\n"
        f"MemAvailable:   {available_kib:>8} kB\nBuffers:           45000 kB\nCached: 700000 kB\n"
    )


def device_tree(model: str, *compatible: str, at: str = "proc/device-tree") -> Tree:
    """A flattened device tree's names: strings end in NUL."""
    return {
        f"{at}/model": f"{model}\0",
        f"{at}/compatible": "".join(f"{one}\0" for one in compatible),
    }


def service(max_memory: str = "max", quota: str = "max") -> Tree:
    """A systemd service under control groups of version 2."""
    group = "sys/fs/cgroup/system.slice/edge-agent.service"
    return {
        "proc/self/cgroup": "0::/system.slice/edge-agent.service\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
        f"{group}/memory.max": f"{max_memory}\n",
        f"{group}/memory.current": "20000000\n",
        f"{group}/cpu.max": f"{quota} 100000\n",
    }


def container(max_memory: str, quota_us: int) -> Tree:
    """A container under control groups of version 1, which hides what firmware says."""
    return {
        "proc/self/cgroup": "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n",
        "proc/self/mountinfo": (
            "31 25 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup ro,cpu,cpuacct\n"
            "32 25 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup ro,memory\n"
        ),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{max_memory}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "30000000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": f"{quota_us}\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }


def without_firmware(tree: Tree) -> Tree:
    """What is left of a machine in a container: /sys/firmware is masked."""
    return {name: text for name, text in tree.items() if "device" not in name}


_V8_2 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop "
    "asimddp"
)
PI4: Tree = {
    "proc/cpuinfo": _arm64(4, "fp asimd evtstrm crc32 cpuid", "0xd08", "0x0", 3)
    + "Hardware\t: BCM2835\nRevision\t: c03114\nSerial\t\t: 100000001234abcd\n"
    "Model\t\t: Raspberry Pi 4 Model B Rev 1.4\n",
    **device_tree("Raspberry Pi 4 Model B Rev 1.4", "raspberrypi,4-model-b", "brcm,bcm2711"),
    "proc/meminfo": _memory(3885396, 3321148),
}
PI400: Tree = PI4 | device_tree("Raspberry Pi 400 Rev 1.0", "raspberrypi,400", "brcm,bcm2711")
CM4: Tree = PI4 | device_tree(
    "Raspberry Pi Compute Module 4 Rev 1.1", "raspberrypi,4-compute-module", "brcm,bcm2711"
)
PI5: Tree = {
    "proc/cpuinfo": _arm64(4, _V8_2, "0xd0b", "0x4", 1)
    + "Revision\t: d04170\nSerial\t\t: 1b2c3d4e5f607182\n"
    "Model\t\t: Raspberry Pi 5 Model B Rev 1.0\n",
    **device_tree("Raspberry Pi 5 Model B Rev 1.0", "raspberrypi,5-model-b", "brcm,bcm2712"),
    "proc/meminfo": _memory(8245984, 7500000),
}
CM5: Tree = PI5 | device_tree(
    "Raspberry Pi Compute Module 5 Rev 1.0", "raspberrypi,5-compute-module", "brcm,bcm2712"
)
ORIN_NANO: Tree = {
    "proc/cpuinfo": _arm64(
        6,
        f"{_V8_2} uscat ilrcpc flagm paca pacg",
        "0xd42",
        "0x0",
        1,
        top="model name\t: ARMv8 Processor rev 1 (v8l)\n",
    ),
    **device_tree(
        "NVIDIA Jetson Orin Nano Developer Kit",
        "nvidia,p3768-0000+p3767-0005",
        "nvidia,p3767-0005",
        "nvidia,tegra234",
        at="sys/firmware/devicetree/base",
    ),
    "proc/meminfo": _memory(7802736, 5900000),
}
ORIN_NANO_SUPER: Tree = ORIN_NANO | device_tree(
    "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    "nvidia,p3768-0000+p3767-0005-super",
    "nvidia,tegra234",
)
ORIN_NX: Tree = ORIN_NANO | device_tree(
    "NVIDIA Jetson Orin NX Engineering Reference Developer Kit",
    "nvidia,p3768-0000+p3767-0000",
    "nvidia,p3767-0000",
    "nvidia,tegra234",
)
VISIONFIVE2: Tree = {
    "proc/cpuinfo": "".join(
        f"processor\t: {number}\nhart\t\t: {number + 1}\n"
        "isa\t\t: rv64imafdc_zicntr_zicsr_zifencei_zihpm_zba_zbb\nmmu\t\t: sv39\n"
        "uarch\t\t: sifive,u74-mc\nmvendorid\t: 0x489\nmarchid\t\t: 0x8000000000000007\n"
        "mimpid\t\t: 0x4210427\n\n"
        for number in range(4)
    ),
    **device_tree("StarFive VisionFive 2 v1.3B", "starfive,visionfive-2-v1.3b", "starfive,jh7110"),
    "proc/meminfo": _memory(8139776, 7000000),
}
MILKV_MARS: Tree = VISIONFIVE2 | device_tree("Milk-V Mars", "milkv,mars", "starfive,jh7110")
VISIONFIVE2_LITE: Tree = VISIONFIVE2 | device_tree(
    "StarFive VisionFive 2 Lite", "starfive,visionfive-2-lite", "starfive,jh7110s"
)
# A core with the vector extension, on a board that no profile names.
SPACEMIT_K1: Tree = {
    "proc/cpuinfo": "".join(
        f"processor\t: {number}\nhart\t\t: {number}\nmodel name\t: Spacemit(R) X60\n"
        "isa\t\t: rv64imafdcv_zicbom_zicboz_zicntr_zicsr_zifencei_zfh_zba_zbb_zvfh\n"
        "mmu\t\t: sv39\nmvendorid\t: 0x710\n\n"
        for number in range(8)
    ),
    **device_tree("BPI-F3", "spacemit,k1-x"),
    "proc/meminfo": _memory(3971000, 3400000),
}
IMX8MP: Tree = {
    "proc/cpuinfo": _arm64(
        4, "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid", "0xd03", "0x0", 4
    ),
    **device_tree("NXP i.MX8MPlus EVK board", "fsl,imx8mp-evk", "fsl,imx8mp"),
    "proc/meminfo": _memory(5926160, 5300000),
}
# big.LITTLE: Cortex-A55 and Cortex-A76; of ssbs only the large ones are made to speak here.
RK3588: Tree = {
    "proc/cpuinfo": _arm64(4, _V8_2, "0xd05", "0x2", 0)
    + _arm64(4, f"{_V8_2} ssbs", "0xd0b", "0x4", 0)
    + "Serial\t\t: 7a01f9b0c3d2e4f5\n",
    **device_tree("FriendlyElec NanoPC-T6", "friendlyarm,nanopc-t6", "rockchip,rk3588"),
    "proc/meminfo": _memory(16224000, 15100000),
}


def _x86(cpus: int, vendor: str, name: str, flags: str) -> str:
    return "".join(
        f"processor\t: {number}\nvendor_id\t: {vendor}\ncpu family\t: 6\nmodel\t\t: 140\n"
        f"model name\t: {name}\nstepping\t: 1\nflags\t\t: {flags}\n"
        "vmx flags\t: vnmi preemption_timer\nbugs\t\t: spectre_v1\n\n"
        for number in range(cpus)
    )


GATEWAY: Tree = {
    "proc/cpuinfo": _x86(
        4,
        "GenuineIntel",
        "Intel(R) Celeron(R) N5105 @ 2.00GHz",
        "fpu vme sse sse2 ssse3 sse4_1 sse4_2 popcnt aes",
    ),
    "sys/class/dmi/id/product_name": "UP SQUARED 6000\n",
    "proc/meminfo": _memory(16207308, 12000000),
}
LAPTOP: Tree = {
    "proc/cpuinfo": _x86(
        8,
        "GenuineIntel",
        "11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz",
        "fpu vme sse sse2 ssse3 fma sse4_1 sse4_2 avx f16c avx2 avx512f avx512bw avx512_vnni",
    ),
    "sys/class/dmi/id/product_name": "20XW005PGE\n",
    "proc/meminfo": _memory(16099268, 9000000),
}
VIRTUAL: Tree = {
    "proc/cpuinfo": _x86(
        2,
        "AuthenticAMD",
        "AMD EPYC 7B13",
        "fpu vme sse sse2 ssse3 fma sse4_1 sse4_2 avx f16c avx2 hypervisor",
    ),
    "sys/class/dmi/id/product_name": "Standard PC (Q35 + ICH9, 2009)\n",
    "proc/meminfo": _memory(2014000, 1500000),
}
