"""How the tensors of model.yaml map to those of one engine's file. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from edge_agent.errors import ModelFileError

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
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...]


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


def _compare_shapes(spec: TensorSpec, native: NativeTensor, side: str | None, what: str) -> None:
    axes = permutation(spec.layout, side) or range(len(spec.shape))
    wanted = tuple(spec.shape[axis] for axis in axes)
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
