"""How the tensors of model.yaml map to those of its FP32 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.backends.binding import bind
from edge_agent.description import EngineFile
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edge_agent.backends.base import ModelFile
    from edge_agent.backends.binding import NativeTensor
    from edge_agent.description import Layout, ModelDescription, TensorSpec

WHAT: Final = "the FP32 reference"


def fit(model: ModelFile, description: ModelDescription) -> EngineFile:
    """Returns the reference as an engine's entry of model.yaml.

    Names and layout are those of the entry for ONNX where they fit, else those of model.yaml; else
    its tensors are taken in the file's order, or each by its shape where only one has it.

    Args:
        model: An ONNX file.
        description: The model that it is the reference of.

    Raises:
        EngineUnavailableError: ONNX Runtime isn't installed here, or doesn't load.
        ModelFileError: It refuses the file, or a tensor fits none of model.yaml.
    """
    from edge_agent.backends import onnx

    inputs, outputs = onnx.describe(model, WHAT)
    entry = description.engine("onnx") or EngineFile(engine="onnx", file=WHAT)
    first: ModelFileError | None = None
    for layout in _layouts(entry.layout):
        try:
            return EngineFile(
                engine="onnx",
                file=WHAT,
                layout=layout,
                inputs=_names(description.inputs, entry.inputs, layout, inputs, "input"),
                outputs=_names(description.outputs, entry.outputs, layout, outputs, "output"),
            )
        except ModelFileError as error:
            first = first or error
    assert first is not None  # noqa: S101 - there is a layout to try
    raise ModelFileError(
        f"doesn't fit model.yaml: {first.message}",
        path=WHAT,
        hint="is it the model that this one was made from?",
    ) from first


def _layouts(own: Layout | None) -> tuple[Layout | None, ...]:
    others: tuple[Layout | None, ...] = (None, "NCHW", "NHWC")
    return (own, *(one for one in others if one != own))


def _names(
    specs: Sequence[TensorSpec],
    given: Mapping[str, str],
    layout: Layout | None,
    natives: Sequence[NativeTensor],
    what: str,
) -> dict[str, str]:
    """Returns native names by those of model.yaml; for errors see `binding.bind`."""
    first: ModelFileError | None = None
    for names in _candidates(specs, given, layout, natives, what):
        try:
            bind(specs, names, layout, natives, what)
        except ModelFileError as error:
            first = first or error
        else:
            return names
    assert first is not None  # noqa: S101 - the first candidate is always there
    raise first


def _candidates(
    specs: Sequence[TensorSpec],
    given: Mapping[str, str],
    layout: Layout | None,
    natives: Sequence[NativeTensor],
    what: str,
) -> Iterator[dict[str, str]]:
    yield dict(given)
    yield {}
    if len(specs) == len(natives):
        yield {spec.name: one.name for spec, one in zip(specs, natives, strict=True)}
    fitting = {
        spec.name: [one.name for one in natives if _fits(spec, one, layout, what)] for spec in specs
    }
    if all(len(found) == 1 for found in fitting.values()):
        yield {name: found[0] for name, found in fitting.items()}


def _fits(spec: TensorSpec, native: NativeTensor, layout: Layout | None, what: str) -> bool:
    try:
        bind([spec], {spec.name: native.name}, layout, [native], what)
    except ModelFileError:
        return False
    return True
