"""What `edge-agent doctor` shows: tables, or one JSON document."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_agent import __version__
from edge_agent.cli import output

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus
    from edge_agent.cli.doctor_apply import Applied
    from edge_agent.cli.doctor_checks import Check
    from edge_agent.config import AgentConfig
    from edge_profiles.detect import Machine
    from edge_profiles.profile import DeviceProfile
    from edge_profiles.selection import Selection

SCHEMA: Final = "edge-agent/doctor/v1"


class Part(NamedTuple):
    """What was found of the keyring, the store or the cache: facts, or the problem."""

    name: str
    path: Path
    counts: Mapping[str, int | str]
    problem: str | None = None

    def as_text(self) -> str:
        """Returns it as a cell of the table."""
        found = ", ".join(f"{what}: {count}" for what, count in self.counts.items())
        missing = "" if os.path.lexists(self.path) else ", which isn't there yet"
        return f"{self.problem or found} ({self.path}{missing})"


class Board(NamedTuple):
    """The device profile in use.

    Attributes:
        selection: Which one, and why.
        profile: Fitted to this machine, with what is configured in its place.
        matrix: Engine, then precision, to ``native``, ``slow`` or ``unsupported``.
    """

    selection: Selection
    profile: DeviceProfile
    matrix: dict[str, dict[str, str]]


class Findings(NamedTuple):
    """Everything that was found; `board` is None where the profile can't be used."""

    config: AgentConfig
    machine: Machine
    engines: list[EngineStatus]
    parts: list[Part]
    board: Board | None
    checks: list[Check]

    @property
    def threads(self) -> int:
        """Threads that an engine gets."""
        return self.board.profile.threads if self.board else self.machine.cpus


def show(found: Findings, applied: Applied | None) -> None:
    """Prints tables for people."""
    machine = found.machine
    rows = [
        ["agent", f"edge-agent {__version__}, Python {_python()}"],
        ["board", machine.board or "not known"],
        ["processor", f"{machine.cpu_model} ({machine.arch}, kernel {machine.kernel})"],
        ["threads", _threads(found)],
        ["memory", f"{machine.memory_mib} MiB" if machine.memory_mib else "not known"],
        ["images", ", ".join(_image_formats())],
        *[[part.name, part.as_text()] for part in found.parts],
    ]
    output.table("This machine", ["", ""], rows)
    if found.board:
        _show_board(found.board)
    output.table(
        "Engines",
        ["engine", "state", "what to do"],
        [[one.engine, one.version or str(one.problem), one.hint or ""] for one in found.engines],
    )
    output.table(
        "Checks",
        ["check", "", "found", "what to do"],
        [[one.name, one.status, one.found, one.hint or ""] for one in found.checks],
    )
    if applied:
        _show_applied(applied)


def document(found: Findings, applied: Applied | None) -> dict[str, Any]:
    """Returns the document of ``--json``."""
    machine = found.machine
    return {
        "schema": SCHEMA,
        "agent": __version__,
        "python": _python(),
        "machine": {
            "arch": machine.arch,
            "cpu_model": machine.cpu_model,
            "cpu_features": list(machine.cpu_features),
            "board": machine.board,
            "kernel": machine.kernel,
            "cpus": machine.cpus,
            "memory_mib": machine.memory_mib,
        },
        "threads": found.threads,
        "engines": [
            {
                "engine": one.engine,
                "available": one.available,
                "version": one.version,
                "problem": one.problem,
                "hint": one.hint,
            }
            for one in found.engines
        ],
        "image_formats": _image_formats(),
        **{
            part.name: {"path": str(part.path), **part.counts, "problem": part.problem}
            for part in found.parts
        },
        "profile": _profile(found.board) if found.board else None,
        "precisions": found.board.matrix if found.board else None,
        "checks": [one._asdict() for one in found.checks],
        "applied": _applied(applied) if applied else None,
    }


def _show_board(board: Board) -> None:
    profile = board.profile
    most = f"{profile.max_memory_mib} MiB" if profile.max_memory_mib else "not known"
    rows = [
        ["profile", f"{profile.title} ({profile.name})"],
        ["chosen", f"{board.selection.reason} ({board.selection.file})"],
        ["engine order", ", ".join(profile.engines)],
        ["memory", f"{profile.min_available_mib} MiB should be available; it uses at most {most}"],
        ["latency", f"an answer is too late after {profile.max_latency_ms} ms"],
    ]
    output.table("Device profile", ["", ""], rows)
    columns = list(next(iter(board.matrix.values())))
    cells = [[engine, *row.values()] for engine, row in board.matrix.items()]
    output.table("Precisions", ["engine", *columns], cells)


def _show_applied(applied: Applied) -> None:
    if applied.added:
        output.line(f"Written to {applied.path}:")
        for line in applied.added:
            output.line(f"  {line}")
    else:
        output.line(f"Nothing is missing in {applied.path}.")
    if applied.kept:
        output.line(f"Kept as you have them: {', '.join(applied.kept)}")


def _profile(board: Board) -> dict[str, Any]:
    profile = board.profile
    return {
        "name": profile.name,
        "title": profile.title,
        "reason": board.selection.reason,
        "file": str(board.selection.file),
        "threads": profile.threads,
        "engines": list(profile.engines),
        "min_available_mib": profile.min_available_mib,
        "max_memory_mib": profile.max_memory_mib,
        "max_latency_ms": profile.max_latency_ms,
        "min_kernel": ".".join(map(str, profile.min_kernel)),
    }


def _applied(applied: Applied) -> dict[str, Any]:
    return {
        "path": str(applied.path),
        "added": list(applied.added),
        "kept": list(applied.kept),
    }


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _threads(found: Findings) -> str:
    if found.config.threads:
        return f"{found.config.threads} (as configured)"
    if found.threads < found.machine.cpus:
        return f"{found.threads} (as the profile says)"
    return f"{found.threads} (CPU affinity and cgroup quota)"


def _image_formats() -> list[str]:
    from PIL import features

    found = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"]
    with warnings.catch_warnings():  # older Pillows warn of a feature that they don't know
        warnings.simplefilter("ignore")
        return found + [name.upper() for name in ("webp", "avif") if features.check(name)]
