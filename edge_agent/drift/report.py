"""The report of the drift gate: what was measured, on what, and whether the contract holds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from edge_agent.drift import gate
from edge_agent.drift.comparison import PairDifference, WorstInput
from edge_agent.drift.metrics import Agreement

if TYPE_CHECKING:
    from edge_agent.description import Drift
    from edge_agent.drift.gate import Breach

SCHEMA: Final = "edge-agent/drift/v1"
_DIGITS: Final = 6


class Inputs(Struct, frozen=True):
    """What the answers were to.

    Attributes:
        count: How many inputs.
        digest: ``sha256:…`` of their names and contents.
    """

    count: int
    digest: str


class EngineDrift(Struct, frozen=True):
    """One engine's answers.

    Attributes:
        engine: Its name.
        version: Package and version; None where it isn't installed here.
        problem: Why it could not be compared; None where it was.
        outputs: Measures against the reference by output; empty without a reference.
        not_finite: By output, how many inputs it answered with NaN or infinity.
        worst: The inputs with the largest errors, worst first.
        golden: What is wrong with its answer to the golden input, None where nothing is.
    """

    engine: str
    version: str | None
    problem: str | None = None
    outputs: Mapping[str, Agreement] = {}
    not_finite: Mapping[str, int] = {}
    worst: tuple[WorstInput, ...] = ()
    golden: str | None = None


class LayerDrift(Struct, frozen=True):
    """One tensor inside the INT8 ONNX file against the tensor of that name in the reference.

    Attributes:
        name: The tensor's name.
        operator: The ONNX operator that makes it in the reference.
        agreement: Its measures.
        added: By how much its relative L2 error exceeds the largest of those that its inputs bring
            along; 0 where one of these is infinite.
    """

    name: str
    operator: str
    agreement: Agreement
    added: float


class Layers(Struct, frozen=True):
    """What became of the layers.

    Attributes:
        compared: In the order in which they run.
        notes: What could not be compared, in sentences.
    """

    compared: tuple[LayerDrift, ...]
    notes: tuple[str, ...]


class DriftReport(Struct, frozen=True):
    """The whole result.

    Attributes:
        name: The model's name.
        version: Its version.
        inputs: What it was run on.
        reference: ``sha256:…`` of the FP32 model's file with its data; None without one.
        thresholds: Those of the contract.
        engines: Every engine of model.yaml, in its order.
        consistency: Every pair of engines that were compared, in every output.
        has_golden: Whether the model has a golden input.
        layers: The layers in the order in which they run; empty unless asked for.
        notes: What could not be compared, in sentences.
    """

    name: str
    version: str
    inputs: Inputs
    reference: str | None
    thresholds: Drift
    engines: tuple[EngineDrift, ...]
    consistency: tuple[PairDifference, ...]
    has_golden: bool
    layers: tuple[LayerDrift, ...] = ()
    notes: tuple[str, ...] = ()

    def with_layers(self, layers: Layers) -> DriftReport:
        """Returns it with the layers."""
        notes = (*self.notes, *layers.notes)
        return msgspec.structs.replace(self, layers=layers.compared, notes=notes)

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """What lies beyond its threshold."""
        return tuple(self._breaches())

    def _breaches(self) -> Iterator[Breach]:
        for one in self.engines:
            yield from gate.of_engine(one.engine, one.outputs, one.not_finite, self.thresholds)
        for pair in self.consistency:
            yield from gate.of_pair(pair, self.thresholds)

    @property
    def wrong_golden(self) -> tuple[str, ...]:
        """The engines that answer the golden input wrongly, each with what is wrong."""
        return tuple(
            f"{one.engine} answers the golden input wrongly: {one.golden}"
            for one in self.engines
            if one.golden
        )

    @property
    def ok(self) -> bool | None:
        """Whether every engine keeps the contract; None where nothing was compared with FP32."""
        if self.breaches or self.wrong_golden:
            return False
        return None if self.reference is None else True

    def as_json(self) -> dict[str, Any]:
        """Returns the report as a JSON document: the same for the same inputs, engines and files.

        Figures have six significant digits; infinity and NaN are ``null``.
        """
        document = {
            "schema": SCHEMA,
            "model": {"name": self.name, "version": self.version},
            "ok": self.ok,
            "reference": self.reference,
            "inputs": self.inputs,
            "thresholds": self.thresholds,
            "engines": [self._engine(one) for one in self.engines],
            "consistency": [
                {
                    "engines": pair.engines,
                    "output": pair.output,
                    "lsb": pair.lsb,
                    "step": pair.step,
                    **msgspec.structs.asdict(pair.agreement),
                }
                for pair in self.consistency
            ],
            "layers": [
                {
                    "name": layer.name,
                    "operator": layer.operator,
                    "relative_l2": layer.agreement.relative_l2,
                    "added": layer.added,
                    "cosine": layer.agreement.cosine,
                    "max_error": layer.agreement.max_error,
                    "inputs": layer.agreement.inputs,
                }
                for layer in self.layers
            ],
            "breaches": self.breaches,
            "notes": self.notes,
        }
        plain: dict[str, Any] = _rounded(msgspec.to_builtins(document))
        return plain

    def _engine(self, one: EngineDrift) -> dict[str, Any]:
        compared = self.has_golden and one.problem is None
        verdict = {"ok": one.golden is None, "problem": one.golden} if compared else None
        return msgspec.structs.asdict(one) | {"golden": verdict}

    def serialise(self) -> bytes:
        """Returns the bytes of the report's file."""
        return (json.dumps(self.as_json(), indent=2) + "\n").encode()


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value
