"""`edge-agent doctor`: what this machine has, and why something is missing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from edge_agent import __version__
from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import failures, output

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus
    from edge_profiles.detect import Machine

SCHEMA: Final = "edge-agent/doctor/v1"


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Answer as one JSON document.")] = False,
) -> None:
    """Show what this machine has: processor, memory, engines, image formats, trust, store.

    Exits with 5 where no engine can be used.
    """
    from edge_agent.backends.registry import BACKENDS
    from edge_profiles.detect import detect

    agent = Agent(configuration.load(), output.notice)
    machine = detect()
    engines = [backend.status() for backend in BACKENDS.values()]
    checks = {"keyring": _keyring(agent), "store": _store(agent)}
    if json:
        output.document(_as_json(agent, machine, engines, checks))
    else:
        _print(agent, machine, engines, checks)
    if not any(engine.available for engine in engines):
        raise typer.Exit(failures.UNAVAILABLE)


def _keyring(agent: Agent) -> str:
    try:
        ring = agent.keyring
    except failures.expected() as error:
        return f"PROBLEM: {failures.sentence(error)}"
    return f"{len(ring.keys)} keys, {len(ring.rules)} rules ({agent.config.keyring_file})"


def _store(agent: Agent) -> str:
    try:
        count = sum(len(installs.bundles) for installs in agent.store.list().values())
    except failures.expected() as error:
        return f"PROBLEM: {failures.sentence(error)}"
    return f"{count} bundles installed ({agent.config.state_dir})"


def _image_formats() -> list[str]:
    from PIL import features

    found = ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"]
    return found + [name.upper() for name in ("webp", "avif") if features.check(name)]


def _print(
    agent: Agent, machine: Machine, engines: list[EngineStatus], checks: dict[str, str]
) -> None:
    python = ".".join(map(str, sys.version_info[:3]))
    rows = [
        ["agent", f"edge-agent {__version__}, Python {python}"],
        ["board", machine.board or "not known"],
        ["processor", f"{machine.cpu_model} ({machine.arch}, kernel {machine.kernel})"],
        ["threads", f"{agent.config.threads or machine.cpus} (affinity and cgroup quota)"],
        ["memory", f"{machine.memory_mib} MiB" if machine.memory_mib else "not known"],
        ["images", ", ".join(_image_formats())],
        *[[name, value] for name, value in checks.items()],
    ]
    output.table("This machine", ["", ""], rows)
    output.table(
        "Engines",
        ["engine", "state", "what to do"],
        [[one.engine, one.version or str(one.problem), one.hint or ""] for one in engines],
    )


def _as_json(
    agent: Agent, machine: Machine, engines: list[EngineStatus], checks: dict[str, str]
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
        **checks,
    }
