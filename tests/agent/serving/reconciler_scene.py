"""A reconciler over the rooms of `scene`, and a desired state that is kept in memory."""

from __future__ import annotations

from typing import Final

from edge_agent.serving.desired import SCHEMA, Desired, DesiredModel, Stored
from edge_agent.serving.reconciler import Reconciler

from .scene import Scene

NONE: Final = Desired(SCHEMA, ())


class FakeKept:
    """Keeps the desired state, unless there is a problem."""

    def __init__(self, kept: Desired | None = None) -> None:
        self.kept = kept
        self.problem: Exception | None = None

    def read(self) -> Desired | None:
        if self.problem:
            raise self.problem
        return self.kept

    def write(self, desired: Desired) -> None:
        if self.problem:
            raise self.problem
        self.kept = desired

    def forget(self) -> None:
        if self.problem:
            raise self.problem
        self.kept = None


def made(s: Scene, kept: FakeKept, otherwise: tuple[str, ...] = ()) -> Reconciler:
    def stored() -> dict[str, Stored]:
        found = {}
        for name, version in s.bundles.active.items():
            if name not in otherwise:
                refs = [one for one in s.bundles.refs.values() if one.name == name]
                bundles = tuple((one.version, one.digest) for one in refs)
                found[name] = Stored((version, dict(bundles)[version]), bundles)
        return found

    return Reconciler(s.registry, s.life_cycle, kept, stored, otherwise, s.log)


def wants(*names: str, **aliases: str) -> Desired:
    models = (name.partition("@") for name in names)
    return Desired(SCHEMA, tuple(DesiredModel(n, v or None) for n, _, v in models), aliases)


def served(s: Scene) -> list[str]:
    return [f"{one.ref.name}@{one.ref.version}" for one in s.registry if one.state == "READY"]
