"""`edge-agent doctor`: what this machine has, how it is used, and why something is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs

from edge_agent import config as configuration
from edge_agent.app import Agent
from edge_agent.cli import doctor_checks, failures, options, output
from edge_agent.cli.doctor_checks import Check
from edge_agent.cli.doctor_report import Board, Findings, Part, document, show

if TYPE_CHECKING:
    from edge_agent.backends.base import EngineStatus
    from edge_agent.cli.doctor_apply import Applied
    from edge_profiles.detect import Machine

_ROOT = Path("/")


def doctor(
    json: options.JsonOption = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Name this board's profile in config.toml; what is there stays."
        ),
    ] = False,
) -> None:
    """Show what this machine has and which device profile fits it, and check what it needs.

    Exits with 5 where no engine can be used, with 1 where a check fails.
    """
    agent = Agent(configuration.load(), output.notice)
    applied = _apply(agent) if apply else None
    found = _look(agent)
    if json:
        output.document(document(found, applied))
    else:
        show(found, applied)
    if not any(engine.available for engine in found.engines):
        raise typer.Exit(failures.UNAVAILABLE)
    if any(check.status == doctor_checks.FAIL for check in found.checks):
        raise typer.Exit(failures.OTHER)


def _apply(agent: Agent) -> Applied:
    from edge_agent.cli.doctor_apply import apply
    from edge_profiles.detect import cpu_threads, memory_limit_bytes

    # What the environment says is for now, not for the file.
    of_board = Agent(
        structs.replace(agent.config, profile=configuration.AUTO_PROFILE), agent.notify
    ).selection
    fitted = of_board.profile.fitted(cpu_threads(), memory_limit_bytes())
    return apply(agent.config.file, fitted)


def _look(agent: Agent) -> Findings:
    from edge_agent.backends.registry import BACKENDS
    from edge_profiles.detect import detect

    machine = detect()
    engines = [backend.status() for backend in BACKENDS.values()]
    parts = [_keyring(agent), _store(agent)]
    checks = [_as_check(part) for part in parts]
    cache, hint = _cache(agent)
    parts.append(cache)
    checks.append(doctor_checks.cache(cache.problem, cache.as_text(), hint))
    board: Board | None = None
    try:
        board = Board(agent.selection, agent.profile, agent.profile.matrix(machine.cpu_features))
        checks += _of_board(agent, board, machine, engines)
    except failures.expected() as error:
        hint = getattr(error, "hint", None)
        checks.append(Check("profile", doctor_checks.FAIL, failures.sentence(error), hint))
    return Findings(agent.config, machine, engines, parts, board, checks)


def _of_board(
    agent: Agent, board: Board, machine: Machine, engines: list[EngineStatus]
) -> list[Check]:
    from edge_profiles.board import names
    from edge_profiles.detect import memory_available_bytes

    profile = board.profile
    available = memory_available_bytes()
    return [
        doctor_checks.board(profile, names(_ROOT, machine.arch), machine),
        doctor_checks.kernel(profile, machine),
        doctor_checks.threads(board.selection.profile.threads, agent.config.threads, machine),
        doctor_checks.memory(profile, machine, None if available is None else available >> 20),
        doctor_checks.engines(profile, engines),
        doctor_checks.int8(board.matrix, engines),
    ]


def _as_check(part: Part) -> Check:
    status = doctor_checks.FAIL if part.problem else doctor_checks.PASS
    return Check(part.name, status, part.as_text())


def _keyring(agent: Agent) -> Part:
    path = agent.config.keyring_file
    try:
        ring = agent.keyring
    except failures.expected() as error:
        return Part("keyring", path, {}, failures.sentence(error))
    return Part("keyring", path, {"keys": len(ring.keys), "rules": len(ring.rules)})


def _store(agent: Agent) -> Part:
    path = agent.config.state_dir
    try:
        count = sum(len(installs.bundles) for installs in agent.store.list().values())
    except failures.expected() as error:
        return Part("store", path, {}, failures.sentence(error))
    return Part("store", path, {"bundles": count})


def _cache(agent: Agent) -> tuple[Part, str | None]:
    """Looks at the cache, and says what to do about it."""
    path = agent.config.cache_file
    try:
        from edge_agent.cache import inspection

        found = inspection.look(path)
    except ImportError as error:
        missing = f"Python has no SQLite here: {error}"
        return Part("cache", path, {}, missing), "install Python's module sqlite3"
    except failures.expected() as error:
        return Part("cache", path, {}, failures.sentence(error)), getattr(error, "hint", None)
    counts: dict[str, int | str] = {"answers": found.entries, "size_bytes": found.size_bytes}
    if found.rebuilt:
        counts |= {"rebuilt": found.rebuilt, "reason": str(found.reason)}
    return Part("cache", path, counts), None
