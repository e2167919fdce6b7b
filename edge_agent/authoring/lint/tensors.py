"""Compares the tensors of a model file with model.yaml: every difference, not the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.authoring.lint.findings import Finding
from edge_agent.authoring.native_tensors import covered
from edge_agent.backends.binding import bind
from edge_agent.description_rules import CHANNELS
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edge_agent.backends.binding import NativeTensor
    from edge_agent.description import (
        EngineFile,
        ModelDescription,
        Normalize,
        Preprocess,
        TensorSpec,
    )

_CLIPPED: Final = 0.05
_SPARE: Final = 1.25


def check(
    description: ModelDescription,
    part: EngineFile,
    inputs: Sequence[NativeTensor],
    outputs: Sequence[NativeTensor],
) -> Iterator[Finding]:
    """Compares one file's tensors with the description.

    Args:
        description: The model.yaml.
        part: Its entry for the file.
        inputs: The file's inputs.
        outputs: The file's outputs.
    """
    yield from _side(part, description.inputs, part.inputs, inputs, "input")
    yield from _side(part, description.outputs, part.outputs, outputs, "output")
    yield from _clipped(description, part, inputs)


def _side(
    part: EngineFile,
    specs: Sequence[TensorSpec],
    names: Mapping[str, str],
    natives: Sequence[NativeTensor],
    what: str,
) -> Iterator[Finding]:
    by_name = {one.name: one for one in natives}
    described = set()
    for spec in specs:
        native = by_name.get(names.get(spec.name, spec.name))
        if native is None:
            known = ", ".join(sorted(by_name)) or "none"
            said = f"has no {what} {names.get(spec.name, spec.name)!r}; it has {known}"
            hint = f"map the name under engines[…].{what}s in model.yaml"
            yield Finding("tensor-missing", part.file, said, hint=hint)
            continue
        described.add(native.name)
        try:
            bind([spec], {spec.name: native.name}, part.layout, [native], what)
        except ModelFileError as error:
            yield Finding("tensor-shape", part.file, error.message, hint=error.hint)
        if not _dtype_fits(spec, native):
            said = f"the {what} {native.name!r} is {native.dtype}, model.yaml makes it {spec.dtype}"
            yield Finding("tensor-dtype", part.file, said)
    for name in sorted(set(by_name) - described) if what == "input" else ():
        yield Finding("tensor-extra", part.file, f"needs an input {name!r} that model.yaml lacks")


def _dtype_fits(spec: TensorSpec, native: NativeTensor) -> bool:
    return spec.dtype == native.dtype or (native.scale is not None and spec.dtype[0] == "f")


def _clipped(
    description: ModelDescription, part: EngineFile, inputs: Sequence[NativeTensor]
) -> Iterator[Finding]:
    """Warns where preprocess makes other numbers than the file's quantisation has steps for."""
    rule = description.preprocess
    if rule is None or rule.normalize is None:
        return
    low, high = _made(rule, rule.normalize)
    name = part.inputs.get(rule.input, rule.input)
    for one in inputs:
        reach = covered(one)
        if one.name == name and reach and not _fits(low, high, reach):
            yield Finding(
                "quantisation-range",
                part.file,
                f"preprocess makes {low:.4g} to {high:.4g}, the file's quantisation covers "
                f"{reach[0]:.4g} to {reach[1]:.4g}",
                hint="is normalize what the model was trained with?",
            )


def _made(rule: Preprocess, norm: Normalize) -> tuple[float, float]:
    channels = CHANNELS[rule.color]
    pairs = list(zip(norm.mean[:channels], norm.std[:channels], strict=True))
    low = min((0 - mean) / std for mean, std in pairs)
    return low, max((255 / norm.divisor - mean) / std for mean, std in pairs)


def _fits(low: float, high: float, reach: tuple[float, float]) -> bool:
    slack = _CLIPPED * (high - low)
    if low < reach[0] - slack or high > reach[1] + slack:
        return False
    # A quantised range always has a zero in it; calibration never finds more than is made.
    return reach[1] - reach[0] <= _SPARE * (max(high, 0.0) - min(low, 0.0))
