"""How the tensors of model.yaml map to those of one engine's file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.description import MAX_TENSOR_BYTES
from edge_agent.errors import ModelFileError
from edge_agent.types import dtype_name

if TYPE_CHECKING:
    from edge_agent.description import Layout, TensorSpec
    from edge_agent.types import Tensor

_PERMUTATION: Final = {("NCHW", "NHWC"): (0, 2, 3, 1), ("NHWC", "NCHW"): (0, 3, 1, 2)}


class NativeTensor(Struct, frozen=True):
    """A tensor as the engine reports it.

    Attributes:
        name: Its name in the file.
        dtype: NumPy's name of the element type.
        shape: Axis lengths; None for an axis that is open.
        scale: Step of its affine quantisation, ``real = (q - zero_point) * scale``; None where the
            engine reports none.
        zero_point: See there.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    scale: float | None = None
    zero_point: int = 0


class Bound(Struct, frozen=True):
    """One tensor of model.yaml together with the native one that carries it.

    Attributes:
        spec: As described.
        native: As the engine reports it.
        layout: Layout on the engine's side.
    """

    spec: TensorSpec
    native: NativeTensor
    layout: Layout | None

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The described axes in the engine's order."""
        return _turned_shape(self.spec, self.layout)

    def to_described(self, value: Tensor) -> Tensor:
        """Returns an output of the engine in the layout of model.yaml."""
        return turned(value, self.layout, self.spec.layout)


def engine_layout(spec: TensorSpec, layout: Layout | None) -> Layout | None:
    """Returns the layout that a tensor has on the engine's side.

    Args:
        spec: The tensor as described; one without a layout never has one.
        layout: What the engine's entry in model.yaml says, None where it agrees.
    """
    return (layout or spec.layout) if spec.layout else None


def permutation(source: str | None, target: str | None) -> tuple[int, ...] | None:
    """Returns the axes order that turns one layout into another, None where nothing moves."""
    return _PERMUTATION.get((source or "", target or ""))


def turned(value: Tensor, source: str | None, target: str | None) -> Tensor:
    """Returns a tensor in another layout, C-contiguous; the same one where nothing moves."""
    axes = permutation(source, target)
    return value.transpose(axes).copy() if axes else value


def bind(
    specs: Sequence[TensorSpec],
    names: Mapping[str, str],
    layout: Layout | None,
    natives: Sequence[NativeTensor],
    what: str,
) -> tuple[Bound, ...]:
    """Finds the native tensor of each described one and compares shapes.

    Args:
        specs: Inputs or outputs of model.yaml.
        names: Native names by described names, where they differ.
        layout: Layout of images in this file, where it isn't the described one.
        natives: What the engine reports.
        what: ``input`` or ``output``, for messages.

    Raises:
        ModelFileError: A tensor is missing, undescribed, named as another, or of another shape.
    """
    by_name = {native.name: native for native in natives}
    if len(by_name) < len(natives):
        raise ModelFileError(f"the file has two {what}s of one name")
    bound = []
    for spec in specs:
        native = by_name.get(names.get(spec.name, spec.name))
        if native is None:
            known = ", ".join(sorted(by_name))
            raise ModelFileError(
                f"the file has no {what} {names.get(spec.name, spec.name)!r}; it has {known}",
                hint=f"map the name under engines[…].{what}s in model.yaml",
            )
        side = engine_layout(spec, layout)
        _compare_shapes(spec, native, side, what)
        bound.append(Bound(spec, native, side))
    extra = set(by_name) - {one.native.name for one in bound}
    if what == "input" and extra:
        raise ModelFileError(f"the file needs an input {min(extra)!r} that model.yaml lacks")
    return tuple(bound)


def check_outputs(
    outputs: Sequence[Bound],
    values: Sequence[Tensor],
    inputs: Sequence[Bound],
    given: Mapping[str, Tensor],
) -> None:
    """Compares what an engine returned with its description, before anything relies on it.

    An axis with a name may be empty where no input fixes it: a detector that found nothing.

    Args:
        outputs: The outputs, as they are bound.
        values: Their values as the engine returned them, in that order.
        inputs: The inputs, as they are bound.
        given: Their values by the names of model.yaml, in the engine's layout.

    Raises:
        ModelFileError: One is of another dtype or shape, of more than 256 MiB, or contradicts
            the length that an axis of that name has elsewhere.
    """
    lengths: dict[str, int] = {}
    for one in inputs:
        pairs = zip(one.shape, given[one.spec.name].shape, strict=False)
        lengths |= {axis: length for axis, length in pairs if isinstance(axis, str)}
    for one, value in zip(outputs, values, strict=True):
        _check_output(one, value, lengths)


def _check_output(one: Bound, value: Tensor, lengths: dict[str, int]) -> None:
    import numpy as np

    what = f"the output {one.spec.name!r} came out"
    made = dtype_name(value.dtype) if isinstance(value, np.ndarray) else type(value).__name__
    if made != one.native.dtype:
        raise ModelFileError(f"{what} as {made}, the file declares {one.native.dtype}")
    fits = len(one.shape) == len(value.shape) and all(
        lengths.setdefault(want, have) == have if isinstance(want, str) else want == have
        for want, have in zip(one.shape, value.shape, strict=True)
    )
    shown = f"{what} with the shape {list(value.shape)}"
    if not fits:
        known = [f", {a} is {lengths[a]}" for a in one.shape if isinstance(a, str) and a in lengths]
        raise ModelFileError(
            f"{shown}, model.yaml makes it {list(one.shape)}{''.join(known)}"
            + (f" ({one.layout})" if one.layout else ""),
            hint="correct the shape in model.yaml, or export the model again",
        )
    size = value.size * max(value.itemsize, np.dtype(one.spec.dtype).itemsize)
    if size > MAX_TENSOR_BYTES:
        raise ModelFileError(f"{shown}: {size} bytes, the limit is {MAX_TENSOR_BYTES}")


def _turned_shape(spec: TensorSpec, side: str | None) -> tuple[int | str, ...]:
    axes = permutation(spec.layout, side)
    return tuple(spec.shape[axis] for axis in axes) if axes else spec.shape


def _compare_shapes(spec: TensorSpec, native: NativeTensor, side: str | None, what: str) -> None:
    wanted = _turned_shape(spec, side)
    fits = len(wanted) == len(native.shape) and all(
        have is None or isinstance(want, str) or want == have
        for want, have in zip(wanted, native.shape, strict=True)
    )
    if not fits:
        shown = [axis if axis is not None else "?" for axis in native.shape]
        raise ModelFileError(
            f"the {what} {native.name!r} has the shape {shown} in the file, "
            f"model.yaml makes it {list(wanted)}" + (f" ({side})" if side else ""),
            hint="correct shape or layout in model.yaml; the engine's entry may state its own",
        )
