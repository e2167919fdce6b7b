"""`edge-agent doctor`: what this machine has, and why something is missing."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from edge_agent import __version__
from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import failures, options, output

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus
    from edge_profiles.detect import Machine

SCHEMA: Final = "edge-agent/doctor/v1"


def doctor(
    json: options.JsonOption = False,
) -> None:
    """Show what this machine has: processor, memory, engines, image formats, trust, store.

    Exits with 5 where no engine can be used, with 1 where keyring or store have a problem.
    """
    from edge_agent.backends.registry import BACKENDS
    from edge_profiles.detect import detect

    agent = Agent(configuration.load(), output.notice)
    machine = detect()
    engines = [backend.status() for backend in BACKENDS.values()]
    checks = [_keyring(agent), _store(agent)]
    if json:
        output.document(_as_json(agent, machine, engines, checks))
    else:
        _print(agent, machine, engines, checks)
    if not any(engine.available for engine in engines):
        raise typer.Exit(failures.UNAVAILABLE)
    if any(check.problem for check in checks):
        raise typer.Exit(failures.OTHER)


class _Check(NamedTuple):
    """What was found of the keyring or the store: counts, or the problem."""

    name: str
    path: Path
    counts: dict[str, int]
    problem: str | None = None

    def as_text(self) -> str:
        found = ", ".join(f"{what}: {count}" for what, count in self.counts.items())
        return f"{self.problem or found} ({self.path})"


def _keyring(agent: Agent) -> _Check:
    path = agent.config.keyring_file
    try:
        ring = agent.keyring
    except failures.expected() as error:
        return _Check("keyring", path, {}, failures.sentence(error))
    return _Check("keyring", path, {"keys": len(ring.keys), "rules": len(ring.rules)})


def _store(agent: Agent) -> _Check:
    path = agent.config.state_dir
    try:
        count = sum(len(installs.bundles) for installs in agent.store.list().values())
    except failures.expected() as error:
        return _Check("store", path, {}, failures.sentence(error))
    return _Check("store", path, {"bundles": count})


def _image_formats() -> list[str]:
    from PIL import features

    found = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"]
    with warnings.catch_warnings():  # older Pillows warn of a feature that they don't know
        warnings.simplefilter("ignore")
        return found + [name.upper() for name in ("webp", "avif") if features.check(name)]


def _threads(agent: Agent, machine: Machine) -> str:
    if agent.config.threads:
        return f"{agent.config.threads} (as configured)"
    return f"{machine.cpus} (CPU affinity and cgroup quota)"


def _print(
    agent: Agent, machine: Machine, engines: list[EngineStatus], checks: list[_Check]
) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    rows = [
        ["agent", f"edge-agent {__version__}, Python {python}"],
        ["board", machine.board or "not known"],
        ["processor", f"{machine.cpu_model} ({machine.arch}, kernel {machine.kernel})"],
        ["threads", _threads(agent, machine)],
        ["memory", f"{machine.memory_mib} MiB" if machine.memory_mib else "not known"],
        ["images", ", ".join(_image_formats())],
        *[[check.name, check.as_text()] for check in checks],
    ]
    output.table("This machine", ["", ""], rows)
    output.table(
        "Engines",
        ["engine", "state", "what to do"],
        [[one.engine, one.version or str(one.problem), one.hint or ""] for one in engines],
    )


def _as_json(
    agent: Agent, machine: Machine, engines: list[EngineStatus], checks: list[_Check]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "agent": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "machine": {
            "arch": machine.arch,
            "cpu_model": machine.cpu_model,
            "cpu_features": list(machine.cpu_features),
            "board": machine.board,
            "kernel": machine.kernel,
            "cpus": machine.cpus,
            "memory_mib": machine.memory_mib,
        },
        "threads": agent.config.threads or machine.cpus,
        "engines": [
            {
                "engine": one.engine,
                "available": one.available,
                "version": one.version,
                "problem": one.problem,
                "hint": one.hint,
            }
            for one in engines
        ],
        "image_formats": _image_formats(),
        **{
            check.name: {"path": str(check.path), **check.counts, "problem": check.problem}
            for check in checks
        },
    }
