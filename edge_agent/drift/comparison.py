"""Answers of several engines, input by input, against a reference and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct

from edge_agent.description import Classification
from edge_agent.drift.metrics import Agreement, Running
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription
    from edge_agent.types import Tensor

    Answers = Mapping[str, Tensor]

REFERENCE: Final = "the reference"
_WORST: Final = 3


class WorstInput(Struct, frozen=True):
    """An input with one of the largest errors.

    Attributes:
        output: Of which output.
        name: The input's file name.
        relative_l2: The relative L2 error of this input alone.
    """

    output: str
    name: str
    relative_l2: float


class PairDifference(Struct, frozen=True):
    """How far two engines lie from each other in one output; the first one is the reference.

    Attributes:
        engines: The two, in the order of model.yaml.
        output: The output.
        agreement: The second engine's answers measured against the first one's.
        step: What one step of quantisation is worth, the larger of both; None where it isn't known
            of both.
    """

    engines: tuple[str, str]
    output: str
    agreement: Agreement
    step: float | None

    @property
    def lsb(self) -> float | None:
        """The largest difference in steps, without float32's rounding; None without a step."""
        return None if self.step is None else round(self.agreement.max_error / self.step, 3)


class Comparison:
    """Takes every engine's answers to one input after the other; it keeps no tensor.

    Args:
        description: The model.
        engines: Names of the engines, in the order of model.yaml.
    """

    def __init__(self, description: ModelDescription, engines: Sequence[str]) -> None:
        self._engines = tuple(engines)
        self._outputs = [spec.name for spec in description.outputs]
        self._top_k = {name: ranks(description, name) for name in self._outputs}
        self._drift: dict[tuple[str, str], Running] = {}
        self._pairs: dict[tuple[str, str, str], Running] = {}
        self._worst: dict[str, list[WorstInput]] = {engine: [] for engine in engines}
        self._not_finite = {(engine, name): 0 for engine in engines for name in self._outputs}

    def add(
        self, source: str, answers: Mapping[str, Answers], reference: Answers | None = None
    ) -> None:
        """Adds the answers to one input.

        Args:
            source: The input's file name.
            answers: Outputs by the names of model.yaml, by engine; all engines, every time.
            reference: The reference's outputs; given every time or never.

        Raises:
            ModelFileError: Two answers differ in shape, so they can't be compared.
        """
        for name in self._outputs:
            for engine in self._engines:
                answer = answers[engine][name]
                self._not_finite[engine, name] += not np.isfinite(answer).all()
                if reference is not None:
                    self._add_drift(engine, name, (answer, reference[name]), source)
            for pair in combinations(self._engines, 2):
                first, second = (answers[engine][name] for engine in pair)
                _require_one_shape(name, pair, (first, second), source)
                running = self._pairs.setdefault((*pair, name), self._running(name))
                running.add(second, first)

    def _add_drift(self, engine: str, name: str, both: tuple[Tensor, Tensor], source: str) -> None:
        _require_one_shape(name, (engine, REFERENCE), both, source)
        error = self._drift.setdefault((engine, name), self._running(name)).add(*both)
        found = [*self._worst[engine], WorstInput(name, source, error)]
        self._worst[engine] = sorted(found, key=lambda one: -one.relative_l2)[:_WORST]

    def _running(self, name: str) -> Running:
        return Running(self._top_k[name])

    def outputs(self, engine: str) -> dict[str, Agreement]:
        """Returns an engine's measures by output; empty without a reference."""
        return {name: one.result() for (of, name), one in self._drift.items() if of == engine}

    def not_finite(self, engine: str) -> dict[str, int]:
        """Returns by output how many inputs the engine answered with NaN or infinity."""
        return {name: count for (of, name), count in self._not_finite.items() if of == engine}

    def worst(self, engine: str) -> tuple[WorstInput, ...]:
        """Returns the inputs with the largest errors, worst first; empty without a reference."""
        return tuple(self._worst[engine])

    def pairs(self, steps: Mapping[tuple[str, str], float | None]) -> Iterator[PairDifference]:
        """Yields the difference of each pair of engines in each output.

        Args:
            steps: What one step of quantisation is worth, by engine and output; None where it
                isn't known.
        """
        for (first, second, name), running in self._pairs.items():
            found = [step for one in (first, second) if (step := steps.get((one, name)))]
            step = max(found) if len(found) == 2 else None
            yield PairDifference((first, second), name, running.result(), step)


def ranks(description: ModelDescription, output: str) -> int | None:
    """Returns the k of top-k for an output of class scores, None for any other."""
    rule = description.postprocess
    is_scores = isinstance(rule, Classification) and rule.output == output
    return description.contract.drift.top_k if is_scores else None


def _require_one_shape(
    output: str, who: tuple[str, str], both: tuple[Tensor, Tensor], source: str
) -> None:
    one, other = both
    if one.shape != other.shape:
        raise ModelFileError(
            f"the output {output!r} has the shape {list(one.shape)} on {who[0]} and "
            f"{list(other.shape)} on {who[1]}, so they can't be compared",
            path=source,
        )
