"""Calibration: sample inputs go through the bundle's own pipeline, and their ranges are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edge_agent.authoring import staging
from edge_agent.authoring.gate.sample_inputs import SampleReader, named
from edge_agent.authoring.quantising.node_choice import finite
from edge_agent.authoring.quantising.quantiser import Calibrater

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_agent.app import Agent
    from edge_agent.authoring.quantising.quantiser import Ranges
    from edge_agent.bundles import Contents
    from edge_agent.description import EngineFile
    from edge_agent.types import Tensor

Method = Literal["minmax", "percentile", "entropy"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """How the range of a tensor follows from the values that the samples give it.

    Attributes:
        method: ``minmax``: the smallest and the largest value; ``percentile``: what holds
            `percentile` of them; ``entropy``: what loses least information (TensorRT's rule).
        percentile: In percent, for ``percentile``.
    """

    method: Method = "minmax"
    percentile: float = 99.99

    @property
    def passes(self) -> int:
        """How often each sample is run: a histogram needs to know its ends first."""
        return 1 if self.method == "minmax" else 2


def inputs_of(
    agent: Agent, contents: Contents, part: EngineFile
) -> Callable[[Path], dict[str, Tensor]]:
    """Returns what makes an engine's input tensors, by their names in its file, of a sample.

    Args:
        agent: The agent.
        contents: The model, whose pipeline is used.
        part: The entry of model.yaml for the engine: layout, and names of inputs.
    """
    reader = SampleReader(agent.loader, contents)

    def made(file: Path) -> dict[str, Tensor]:
        with named(file):
            return reader.read(file).feed(part)

    return made


def collect(
    proto: Any,
    how: Calibration,
    files: Sequence[Path],
    inputs: Callable[[Path], dict[str, Tensor]],
    progress: Callable[[int, int], None] | None = None,
) -> Ranges:
    """Runs the float model on samples, one in memory at a time, and returns the tensors' ranges.

    Beside the model this takes the memory of one sample's tensors, for ``percentile`` and
    ``entropy`` of all its layers at once, and 24 KiB a layer.

    Args:
        proto: The model, prepared by `quantiser.prepare`.
        how: The rule.
        files: The samples.
        inputs: Makes the model's inputs of a sample.
        progress: Called with runs done and runs in all.

    Raises:
        BadInputError: A sample can't be used.
        ModelFileError: ONNX Runtime refuses the model, or it makes infinities, of which there is
            no histogram.
    """
    ranges: Ranges | None = None
    total = how.passes * len(files)
    for index in range(how.passes):
        method: Method = "minmax" if index == 0 else how.method
        with staging.scratch() as folder:
            calibrater = Calibrater(proto, method, how.percentile, ranges, folder)
            for count, file in enumerate(files, start=1):
                calibrater.collect(inputs(file), str(file))
                if progress:
                    progress(index * len(files) + count, total)
            ranges = calibrater.ranges()
        if index + 1 < how.passes:
            ranges = finite(proto, ranges, (), "the float model")
    return ranges or {}
