"""How the tensors of model.yaml map to those of its FP32 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from edge_agent.backends.binding import bind, engine_layout
from edge_agent.description import EngineFile
from edge_agent.errors import ModelFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_agent.backends.base import ModelFile
    from edge_agent.backends.binding import NativeTensor
    from edge_agent.description import Layout, ModelDescription, TensorSpec

WHAT: Final = "the FP32 reference"

Engine = Literal["onnx", "tflite"]


def engine_of(model: ModelFile) -> Engine:
    """Tells from a model's content which engine runs it.

    Source: TensorFlow Lite, schema.fbs, file_identifier; at byte 4 as in every FlatBuffer.
    """
    return "tflite" if model.data[4:8] == b"TFL3" else "onnx"


def fit(
    model: ModelFile, description: ModelDescription, tell: Callable[[str], None] | None = None
) -> EngineFile:
    """Returns the reference as an engine's entry of model.yaml.

    Each tensor is found by its name in the entry for the engine that runs the reference, or in
    model.yaml; else by its dtype and shape, where these leave no choice. A guess between two
    tensors would measure, or keep as golden, the one in place of the other. The layout is that of
    the entry, else what the shapes leave.

    Args:
        model: An ONNX file, or a float TFLite file.
        description: The model that it is the reference of.
        tell: Told, in a sentence, of each tensor that was not found by name.

    Raises:
        EngineUnavailableError: The engine that runs it isn't installed here, or doesn't load.
        ModelFileError: It refuses the file, the file is quantised itself, a tensor fits none of
            model.yaml, or several, or two layouts fit and no entry says which.
    """
    engine = engine_of(model)
    tensors = _described(model, engine)
    own = description.engine(engine)
    entry = own or EngineFile(engine=engine, file=WHAT)
    found = _fitting(description, entry, *tensors)
    if own is None and len(found) > 1:
        raise ModelFileError(
            "its shapes don't tell its layout: NCHW and NHWC both fit model.yaml",
            path=WHAT,
            hint=f"say it in an entry for {engine} under engines, or fix the shapes in the export",
        )
    if tell:
        _tell(found[0], entry, tell)
    return found[0]


def _described(
    model: ModelFile, engine: Engine
) -> tuple[Sequence[NativeTensor], Sequence[NativeTensor]]:
    if engine == "onnx":
        from edge_agent.backends import onnx

        return onnx.describe(model, WHAT)
    from edge_agent.backends import tflite

    inputs, outputs = tflite.describe(model, WHAT)
    for one in (*inputs, *outputs):
        if one.scale is not None:
            raise ModelFileError(
                f"is quantised itself: {one.name!r} is {one.dtype}",
                path=WHAT,
                hint="convert the float model once more, without optimizations",
            )
    return inputs, outputs


def _fitting(
    description: ModelDescription,
    entry: EngineFile,
    inputs: Sequence[NativeTensor],
    outputs: Sequence[NativeTensor],
) -> list[EngineFile]:
    """Returns the ways to read the file, one a layout that fits; there is one at least."""
    found: list[EngineFile] = []
    first: ModelFileError | None = None
    for layout in _layouts(entry.layout, (*description.inputs, *description.outputs)):
        try:
            one = EngineFile(
                engine=entry.engine,
                file=WHAT,
                layout=layout,
                inputs=_names(description.inputs, entry.inputs, layout, inputs, "input"),
                outputs=_names(description.outputs, entry.outputs, layout, outputs, "output"),
            )
        except ModelFileError as error:
            first = first or error
        else:
            found.append(one)
    if found:
        return found
    assert first is not None  # noqa: S101 - there is a layout to try
    raise ModelFileError(
        f"doesn't fit model.yaml: {first.message}",
        path=WHAT,
        hint="is it the model that this one was made from? then let its tensors have the names of "
        "model.yaml, or of engines[…].inputs and engines[…].outputs there",
    ) from first


def _layouts(own: Layout | None, specs: Sequence[TensorSpec]) -> tuple[Layout | None, ...]:
    """Returns the layouts that differ for these tensors, the entry's own first."""
    candidates: tuple[Layout | None, ...] = (own, None, "NCHW", "NHWC")
    distinct: dict[tuple[Layout | None, ...], Layout | None] = {}
    for layout in candidates:
        distinct.setdefault(tuple(engine_layout(spec, layout) for spec in specs), layout)
    return tuple(distinct.values())


def _names(
    specs: Sequence[TensorSpec],
    given: Mapping[str, str],
    layout: Layout | None,
    natives: Sequence[NativeTensor],
    what: str,
) -> dict[str, str]:
    """Returns native names by those of model.yaml, where they differ."""
    found = _by_name(specs, given, natives)
    while len(found) < len(specs):
        taken = set(found.values())
        free = [one for one in natives if one.name not in taken]
        fitting = {
            spec.name: [one.name for one in free if _fits(spec, one, layout, what)]
            for spec in specs
            if spec.name not in found
        }
        # Each that is forced may force another; where none is, there are two ways or more.
        name = min(fitting, key=lambda one: len(fitting[one]))
        if len(fitting[name]) != 1:
            raise _no_one_place(name, fitting[name], free, what)
        found[name] = fitting[name][0]
    bind(specs, found, layout, natives, what)
    return {name: native for name, native in found.items() if name != native}


def _by_name(
    specs: Sequence[TensorSpec], given: Mapping[str, str], natives: Sequence[NativeTensor]
) -> dict[str, str]:
    free = {one.name for one in natives}
    found: dict[str, str] = {}
    for names in (given, {spec.name: spec.name for spec in specs}):
        for spec in specs:
            native = names.get(spec.name)
            if spec.name not in found and native in free:
                found[spec.name] = native
                free.remove(native)
    return found


def _fits(spec: TensorSpec, native: NativeTensor, layout: Layout | None, what: str) -> bool:
    try:
        bind([spec], {spec.name: native.name}, layout, [native], what)
    except ModelFileError:
        return False
    return spec.dtype == native.dtype


def _no_one_place(
    name: str, fitting: Sequence[str], free: Sequence[NativeTensor], what: str
) -> ModelFileError:
    if fitting:
        return ModelFileError(f"its {what}s {', '.join(fitting)} fit {name!r} equally well")
    shown = ", ".join(f"{one.name} {one.dtype} {_shape(one)}" for one in free)
    return ModelFileError(f"it has no {what} for {name!r}; it has {shown or 'no other'}")


def _shape(native: NativeTensor) -> list[int | str]:
    return [axis if axis is not None else "?" for axis in native.shape]


def _tell(found: EngineFile, entry: EngineFile, tell: Callable[[str], None]) -> None:
    pairs = (("input", found.inputs, entry.inputs), ("output", found.outputs, entry.outputs))
    for what, names, given in pairs:
        for name, native in names.items():
            if given.get(name) != native:
                tell(f"the {what} {name!r} is {native!r} in {WHAT}: by its shape, not by name")
