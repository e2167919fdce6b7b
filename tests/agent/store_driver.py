"""Runs in a process of its own: what happens to a store when its owner dies at any step.

Arguments: the folder of a publisher, and of a scenario: ``install``, ``update``, ``heal``,
``reactivate`` or ``remove``. Each audited step on a file below the state folder (open to write,
mkdir, rename, remove, ...) is the last but one in turn: a forked child is killed before it. The
parent then prints what the store says, one JSON document a line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edge_agent.bundles import open_bundle
from edge_agent.model_store import ModelStore
from edge_signing.errors import SigningError
from edge_signing.keyring import Keyring
from edge_signing.trust import Purpose

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink"}
ROOT = Path(sys.argv[1])
KEYRING = Keyring.parse((ROOT / "keyring.json").read_bytes())
STATE = ROOT / "crash" / "state"


def check(folder: Path) -> None:
    open_bundle(folder, KEYRING, NOW, Purpose.LOAD).verified.close()


def install(name: str) -> None:
    with open_bundle(ROOT / name, KEYRING, NOW, Purpose.INSTALL) as bundle:
        ModelStore(STATE).install(bundle, "2026-06-01T00:00:00+00:00", check)


def damage() -> None:
    for weights in STATE.glob("bundles/*/model.onnx"):
        weights.write_bytes(bytes(weights.stat().st_size))


# What was done before, and what is done when the process dies.
SCENARIOS: dict[str, tuple[list[Callable[[], Any]], Callable[[], Any]]] = {
    "install": ([], lambda: install("one")),
    "update": ([lambda: install("one")], lambda: install("two")),
    "reactivate": ([lambda: install("one"), lambda: install("two")], lambda: install("one")),
    "heal": ([lambda: install("one"), damage], lambda: install("one")),
    "remove": (
        [lambda: install("one"), lambda: install("two")],
        lambda: ModelStore(STATE).remove("acme/rows@2.0.0"),
    ),
}


def said() -> dict[str, Any]:
    """What the store says, and whether all that it names is there and whole."""
    installed = ModelStore(STATE).list()
    broken = []
    for installs in installed.values():
        for one in installs.bundles:
            try:
                check(STATE / "bundles" / one.digest.removeprefix("sha256:"))
            except SigningError as error:
                broken.append(str(error))
    return {
        "active": {
            name: next(b.version for b in i.bundles if b.digest == i.active)
            for name, i in installed.items()
        },
        "versions": sorted(b.version for i in installed.values() for b in i.bundles),
        "broken": broken,
    }


def die_before(step: int, act: Callable[[], Any]) -> int:
    """Runs `act` in a child that is killed before that step; returns its signal, 0 for none."""
    child = os.fork()
    if child == 0:
        left = step

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal left
            writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
            if event not in CHANGES and not writes:
                return
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        act()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"step {step} failed")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def main() -> None:
    before, act = SCENARIOS[sys.argv[2]]
    base = ROOT / "base"
    shutil.rmtree(STATE.parent, ignore_errors=True)
    STATE.parent.mkdir()
    for done in before:
        done()
    shutil.copytree(STATE.parent, base)
    step, killed = 0, 1
    while killed:
        step += 1
        shutil.rmtree(STATE.parent)
        shutil.copytree(base, STATE.parent)
        killed = die_before(step, act)
        crashed = said()
        install("three")  # the next one sweeps what is left
        named = {b.digest[7:] for i in ModelStore(STATE).list().values() for b in i.bundles}
        there = sorted(p.relative_to(STATE).as_posix() for p in STATE.iterdir())
        folders = {p.name for p in (STATE / "bundles").iterdir()}
        swept = folders <= named and there == ["bundles", "lock", "models.json"]
        line = {"killed": bool(killed), "swept": swept, "after": said()} | crashed
        sys.stdout.write(json.dumps(line) + "\n")


main()
