"""System calls that a worker never needs, refused by the kernel (seccomp(2)).

Source: linux/audit.h, linux/seccomp.h, linux/bpf_common.h; numbers from asm/unistd_64.h and
asm-generic/unistd.h, which ARM64 and RISC-V share.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence
from errno import ENOSYS, EPERM
from typing import Final, NamedTuple

_Instruction = tuple[int, int, int, int]

# Each as (x86-64, generic).
_DENIED: Final[dict[str, tuple[int, int | None]]] = {
    # New connections: the socket to the daemon is there already. io_uring would open others.
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "bind": (49, 200),
    "listen": (50, 201), "socketpair": (53, 199), "accept4": (288, 242),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # Other programs and processes.
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # The file system as others see it, and ways around its permissions.
    "pivot_root": (155, 41), "chroot": (161, 51), "mount": (165, 40), "umount2": (166, 39),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    # Namespaces, and parts of the kernel that are known for their holes.
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "modify_ldt": (154, None), "iopl": (172, None), "ioperm": (173, None),
    # The machine.
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "delete_module": (176, 106), "finit_module": (313, 273),
    "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162),
}  # fmt: skip
# With the worker's own process number as the first argument only, or zero where that means it.
_OWN_PROCESS: Final = {"kill": (62, 129), "tgkill": (234, 131)}
_OWN_PROCESS_OR_ZERO: Final = {"prlimit64": (302, 261)}
_CLONE: Final = (56, 220)
_CLONE3: Final = 435
_CLONE_THREAD: Final = 0x10000
_X32_BIT: Final = 0x40000000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW: Final = (_RETURN, 0, 0, 0x7FFF0000)
_REFUSE: Final = (_RETURN, 0, 0, 0x00050000 | EPERM)
# The flags of clone3(2) lie in memory, which a filter can't read: the C library falls back.
_UNKNOWN: Final = (_RETURN, 0, 0, 0x00050000 | ENOSYS)

_SET_MODE_FILTER: Final = 1
_FLAG_ALL_THREADS: Final = 1


class _Machine(NamedTuple):
    """One architecture.

    Attributes:
        audit: Its AUDIT_ARCH.
        column: Which of the two numbers of a call it has.
        seccomp: Number of seccomp(2).
    """

    audit: int
    column: int
    seccomp: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 0, 317),
    "aarch64": _Machine(0xC00000B7, 1, 277),
    "riscv64": _Machine(0xC00000F3, 1, 277),
}


def apply(libc: ctypes.CDLL) -> bool:
    """Puts the filter on every thread of this process, for good.

    Args:
        libc: The C library; PR_SET_NO_NEW_PRIVS is set already.

    Returns:
        Whether it holds: not on other architectures, nor where the kernel has no filters.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or struct.calcsize("P") != 8:
        return False
    code = b"".join(struct.pack("=HBBI", *one) for one in program(machine, os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog, whose pointer is aligned to 8 bytes.
    filters = struct.pack("=HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    wanted = ctypes.create_string_buffer(filters, len(filters))
    done: int = libc.syscall(machine.seccomp, _SET_MODE_FILTER, _FLAG_ALL_THREADS, wanted)
    return done == 0


def program(machine: _Machine, pid: int) -> list[_Instruction]:
    """Returns the filter in classic BPF.

    Args:
        machine: The architecture.
        pid: This process.
    """
    column = machine.column
    made: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_IF_EQUAL, 1, 0, machine.audit),
        _REFUSE,
        (_LOAD, 0, 0, _NUMBER_AT),
        (_IF_EQUAL, 0, 1, _CLONE3),
        _UNKNOWN,
    ]
    if column == 0:
        made += [(_IF_AT_LEAST, 0, 1, _X32_BIT), _REFUSE]
    numbers = (numbers[column] for numbers in _DENIED.values())
    for number in (number for number in numbers if number is not None):
        made += [(_IF_EQUAL, 0, 1, number), _REFUSE]
    for own in _OWN_PROCESS.values():
        made += _with_argument(own[column], [(_IF_EQUAL, 0, 1, pid), _ALLOW])
    for own in _OWN_PROCESS_OR_ZERO.values():
        equal = [(_IF_EQUAL, 1, 0, pid), (_IF_EQUAL, 0, 1, 0), _ALLOW]
        made += _with_argument(own[column], equal)
    made += _with_argument(_CLONE[column], [(_IF_SET, 0, 1, _CLONE_THREAD), _ALLOW])
    return [*made, _ALLOW]


def _with_argument(number: int, checks: Sequence[_Instruction]) -> list[_Instruction]:
    """Returns checks of the low half of a call's first argument; what passes none is refused."""
    checked = [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT), *checks, _REFUSE]
    return [(_IF_EQUAL, 0, len(checked), number), *checked]
