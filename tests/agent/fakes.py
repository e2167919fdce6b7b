"""Engines in memory, for what decides between engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from edge_agent.backends.base import EngineStatus, ModelFile
from edge_agent.errors import EngineUnavailableError, ModelFileError

if TYPE_CHECKING:
    from edge_agent.description import EngineFile, ModelDescription
    from edge_agent.types import Tensor

Run = Callable[[Mapping[str, "Tensor"]], dict[str, "Tensor"]]


class FakeSession:
    """Implements `Session` with a function."""

    def __init__(self, run: Run, busy_ms: float) -> None:
        self._run = run
        self._busy_ms = busy_ms
        self.inputs: list[Mapping[str, Tensor]] = []

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        end = perf_counter() + self._busy_ms / 1e3
        self.inputs.append(inputs)
        outputs = self._run(inputs)
        while perf_counter() < end:
            pass
        return outputs


class FakeBackend:
    """Implements `Backend`; by default it multiplies as `models.PAIR` and doubles as `ROWS`.

    Attributes:
        problem: Why it isn't installed.
        refuses: Why it refuses every file.
        loaded: The sessions that were made, with their thread counts.
    """

    def __init__(
        self,
        run: Run | None = None,
        busy_ms: float = 0.0,
        problem: str | None = None,
        refuses: str | None = None,
        version: str | None = "1",
    ) -> None:
        self._run = run or compute
        self._busy_ms = busy_ms
        self._version = version
        self.problem = problem
        self.refuses = refuses
        self.loaded: list[tuple[FakeSession, int]] = []

    def stamp(self) -> str | None:
        return self._version  # a package that is broken still lies there; None: no package

    def status(self) -> EngineStatus:
        version = None if self.problem else self._version
        return EngineStatus("fake", version, self.problem, "install it" if self.problem else None)

    def load(
        self, model: ModelFile, description: ModelDescription, part: EngineFile, threads: int
    ) -> FakeSession:
        if self.problem:
            raise EngineUnavailableError(self.problem)
        if self.refuses:
            raise ModelFileError(self.refuses, path=part.file)
        session = FakeSession(self._run, self._busy_ms)
        self.loaded.append((session, threads))
        return session


def compute(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if "x" in inputs:
        return {"y": inputs["x"] * 2}
    if "image" in inputs:
        axes = (2, 3) if inputs["image"].shape[1] == 3 else (1, 2)
        return {"scores": inputs["image"].mean(axes) * 10}
    return {"product": inputs["left"] * inputs["right"]}


def zeros(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: np.zeros_like(value) for name, value in compute(inputs).items()}
