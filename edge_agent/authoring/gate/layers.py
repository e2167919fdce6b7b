"""Where inside an INT8 ONNX file the error comes from: its tensors against the reference's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_agent.authoring import onnx_graphs
from edge_agent.authoring.gate.sample_inputs import named
from edge_agent.backends.onnx import OnnxGraph
from edge_agent.drift.metrics import Running
from edge_agent.drift.report import LayerDrift
from edge_agent.samples import spread

if TYPE_CHECKING:
    from pathlib import Path

    from edge_agent.authoring.gate.sample_inputs import SampleReader
    from edge_agent.backends.base import ModelFile
    from edge_agent.bundles import Progress
    from edge_agent.description import EngineFile
    from edge_agent.drift.metrics import Agreement
    from edge_agent.types import Tensor

# What ONNX Runtime's quantiser appends to the name of a tensor that it rounds.
# Source: onnxruntime.quantization.quant_utils, TENSOR_NAME_QUANT_SUFFIX and DEQUANT_OUTPUT_SUFFIX.
_ROUNDED: Final = "_DequantizeLinear_Output"
# So many tensors of both graphs are in memory together; each batch runs both graphs again.
_AT_ONCE: Final = 24
MAX_INPUTS: Final = 32


class Match(NamedTuple):
    """A tensor of the reference and what stands for it in the INT8 file.

    Attributes:
        name: Its name in the reference.
        operator: What makes it there.
        counterpart: Its name in the INT8 file.
    """

    name: str
    operator: str
    counterpart: str


class Graph:
    """A model whose inner tensors can be looked at.

    Args:
        model: The file.
        part: How its inputs are named, and their layout.

    Attributes:
        part: As given.

    Raises:
        EngineUnavailableError: The ``onnx`` package isn't installed.
        ModelFileError: It is no ONNX file.
    """

    def __init__(self, model: ModelFile, part: EngineFile) -> None:
        self._model = model
        self.part = part
        self._proto = onnx_graphs.parse(model, part.file)

    @property
    def nodes(self) -> Any:
        """The nodes of the main graph, in the order in which they run."""
        return self._proto.graph.node

    def exposing(self, tensors: Sequence[str]) -> OnnxGraph:
        """Returns the graph ready to run, with these tensors as its outputs."""
        shown = onnx_graphs.exposing(self._proto, self._model.external, tensors)
        return OnnxGraph(shown, self.part.file)


def compare(
    reference: Graph,
    quantised: Graph,
    reader: SampleReader,
    files: Sequence[Path],
    progress: Progress | None = None,
) -> tuple[LayerDrift, ...]:
    """Runs both graphs with their optimisations off and compares the tensors that both have.

    Args:
        reference: The FP32 model.
        quantised: The INT8 model that was made from it, which kept the tensors' names.
        reader: Reads the inputs.
        files: The inputs; at most `MAX_INPUTS` of them, evenly spread, are used.
        progress: Called with runs done and runs in all.

    Returns:
        One entry a tensor, in the order in which the reference makes them. Tensors that aren't
        float, or have another shape in the INT8 file, are left out.

    Raises:
        ModelFileError: ONNX Runtime refuses one of the graphs.
        EngineFailedError: One of them fails on an input.
        BadInputError: An input can't be used.
    """
    chosen = spread(files, MAX_INPUTS)
    common = matches(reference.nodes, quantised.nodes)
    batches = [common[start : start + _AT_ONCE] for start in range(0, len(common), _AT_ONCE)]
    steps = _Steps(len(batches) * len(chosen), progress)
    found = [
        each
        for batch in batches
        for each in _compare_batch(reference, quantised, batch, reader, chosen, steps)
    ]
    added = added_errors(reference.nodes, {one.name: it.relative_l2 for one, it in found})
    return tuple(LayerDrift(one.name, one.operator, it, added[one.name]) for one, it in found)


def added_errors(nodes: Any, errors: Mapping[str, float]) -> dict[str, float]:
    """Tells what a layer adds from what it inherits.

    Args:
        nodes: The reference's nodes, in the order in which they run.
        errors: The errors of the tensors that were compared. One that wasn't has the largest of
            its inputs' errors; inputs and weights of the model have none.

    Returns:
        Each of these errors less the largest of its inputs' errors; see `LayerDrift.added`.
    """
    known: dict[str, float] = {}
    added: dict[str, float] = {}
    for node in nodes:
        inherited = max((known.get(one, 0.0) for one in node.input), default=0.0)
        for output in filter(None, node.output):
            known[output] = errors.get(output, inherited)
            if output in errors:
                added[output] = errors[output] - inherited if isfinite(inherited) else 0.0
    return added


def matches(reference: Any, quantised: Any) -> list[Match]:
    """Finds the tensors that two graphs have in common.

    Args:
        reference: The FP32 model's nodes, in the order in which they run.
        quantised: The INT8 model's.

    Returns:
        Tensors by the reference's order. Where the INT8 file rounds a tensor, what comes of it is
        the counterpart: it is what the next layer sees.
    """
    made = {output for node in quantised for output in node.output if output}
    return [
        Match(output, node.op_type, counterpart)
        for node in reference
        if node.op_type != "Constant"
        for output in node.output
        if output and (counterpart := _counterpart(output, made))
    ]


def _counterpart(name: str, made: set[str]) -> str | None:
    return next((one for one in (name + _ROUNDED, name) if one in made), None)


class _Steps:
    """Counts runs."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._progress = progress

    def advance(self) -> None:
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total)


def _compare_batch(
    reference: Graph,
    quantised: Graph,
    batch: list[Match],
    reader: SampleReader,
    files: list[Path],
    steps: _Steps,
) -> Iterator[tuple[Match, Agreement]]:
    wanted = reference.exposing([one.name for one in batch])
    found = quantised.exposing(list(dict.fromkeys(one.counterpart for one in batch)))
    sums = {one.name: Running() for one in batch}
    for file in files:
        with named(file):
            inputs = reader.read(file)
            right = wanted.run(inputs.feed(reference.part))
            given = found.run(inputs.feed(quantised.part))
        _add(batch, right, given, sums)
        steps.advance()
    for one in batch:
        if one.name in sums:
            yield one, sums[one.name].result()


def _add(
    batch: list[Match],
    right: Mapping[str, Tensor],
    given: Mapping[str, Tensor],
    sums: dict[str, Running],
) -> None:
    """Adds what can be compared; a tensor that can't be once is dropped for good."""
    for one in batch:
        want, have = right[one.name], given[one.counterpart]
        if not _is_float(want) or not _is_float(have) or want.shape != have.shape:
            sums.pop(one.name, None)
        elif one.name in sums:
            sums[one.name].add(have, want)


def _is_float(value: object) -> bool:
    import numpy as np

    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
