"""What `edge-agent doctor` judges: each check passes, warns or fails, and says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus
    from edge_profiles.detect import Machine
    from edge_profiles.profile import DeviceProfile

PASS: Final = "pass"  # noqa: S105 - no password
WARN: Final = "warn"
FAIL: Final = "fail"


class Check(NamedTuple):
    """One judgement.

    Attributes:
        name: What was looked at.
        status: ``pass``, ``warn`` or ``fail``.
        found: What was found, as a phrase.
        hint: What to do, where something should be done.
    """

    name: str
    status: str
    found: str
    hint: str | None = None


def board(profile: DeviceProfile, called: tuple[str, ...], machine: Machine) -> Check:
    """Whether the profile is for this board.

    Args:
        profile: The one in use.
        called: What the board is called; nothing where that is hidden, as in containers.
        machine: This machine.
    """
    hint = 'set profile = "auto" in config.toml, or take the profile of this board'
    if not profile.suits(machine.arch):
        found = f"{profile.name} is for {profile.arch}, and this is {machine.arch}"
        return Check("profile", WARN, found, hint)
    is_for_boards = profile.compatible or profile.models
    if called and is_for_boards and not any(profile.is_for(one, machine.arch) for one in called):
        found = f"{profile.name} is for other boards than {called[0]}"
        return Check("profile", WARN, found, hint)
    return Check("profile", PASS, profile.name)


def kernel(profile: DeviceProfile, machine: Machine) -> Check:
    """Whether the kernel is new enough for the board's profile."""
    oldest = ".".join(map(str, profile.min_kernel))
    new_enough = profile.has_kernel(machine.kernel)
    if new_enough is None:
        return Check("kernel", WARN, f"{machine.kernel} says no version; {oldest} is the oldest")
    if new_enough:
        return Check("kernel", PASS, f"{machine.kernel} ({oldest} or later)")
    found = f"{machine.kernel} is older than {oldest}, the oldest for {profile.name}"
    return Check("kernel", FAIL, found, f"update the system to Linux {oldest} or later")


def threads(board_threads: int, configured: int, machine: Machine) -> Check:
    """Whether affinity and quota leave the threads that are wanted.

    Args:
        board_threads: What the profile makes use of; 0 where it sets no limit.
        configured: What the configuration says; 0 where it says nothing.
        machine: This machine.
    """
    wanted = configured or board_threads
    if wanted <= machine.cpus:
        return Check("threads", PASS, f"{wanted or machine.cpus} of {machine.cpus}")
    found = f"CPU affinity and cgroup quota leave {machine.cpus} of {wanted}"
    if configured:
        return Check("threads", WARN, found, "lower threads in config.toml: more only wait")
    return Check("threads", WARN, found, "raise CPUQuota= or AllowedCPUs= of the unit, if you can")


def memory(profile: DeviceProfile, machine: Machine, available_mib: int | None) -> Check:
    """Whether there is the memory that loading a model needs."""
    least = profile.min_available_mib
    if machine.memory_mib is not None and machine.memory_mib < least:
        found = f"this process may use {machine.memory_mib} MiB; {least} should be available"
        hint = "raise the limit of the control group (MemoryMax= of the unit)"
        return Check("memory", WARN, found, hint)
    if available_mib is None:
        return Check("memory", WARN, "what is available isn't known")
    if available_mib < least:
        found = f"{available_mib} MiB are available now; it should be {least}"
        return Check("memory", WARN, found, "end what isn't needed, or use a smaller model")
    return Check("memory", PASS, f"{available_mib} MiB are available now ({least} or more)")


def engines(profile: DeviceProfile, found: list[EngineStatus]) -> Check:
    """Whether engines are there, the board's preferred one among them."""
    there = [one.engine for one in found if one.available]
    missing = {one.engine: one for one in found if not one.available}
    if not there:
        hints = [one.hint for one in found if one.hint]
        return Check("engines", FAIL, "no engine can be used", hints[0] if hints else None)
    first = profile.engines[0]
    if first in missing:
        words = f"{', '.join(there)}; {first}, preferred on {profile.name}, is missing"
        return Check("engines", WARN, words, missing[first].hint)
    return Check("engines", PASS, ", ".join(there))


def cache(problem: str | None, found: str, hint: str | None) -> Check:
    """Whether answers can be remembered; without, each is computed.

    Args:
        problem: Why they can't.
        found: What there is, as a phrase.
        hint: What to do about the problem.
    """
    return Check("cache", WARN if problem else PASS, found, hint if problem else None)


def int8(matrix: Mapping[str, Mapping[str, str]], found: list[EngineStatus]) -> Check:
    """Whether an engine that is there runs INT8 by instructions made for it."""
    how = {one.engine: matrix[one.engine]["int8"] for one in found if one.available}
    words = ", ".join(f"{engine}: {level}" for engine, level in how.items())
    if "native" in how.values():
        return Check("int8", PASS, words)
    hint = "INT8 may be no faster than FP32 here: engines are measured before they are used"
    return Check("int8", WARN, words or "no engine can be used", hint if how else None)
