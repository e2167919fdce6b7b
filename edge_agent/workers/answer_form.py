"""What a model can answer, by its model.yaml: what a worker says is held to it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from edge_agent.calls import ITEM_BYTES
from edge_agent.description import Classification, ModelDescription, TensorSpec, batch_axis

# Of all outputs of one answer that have an axis of any length.
MAX_OPEN_BYTES: Final = 128 * 1024 * 1024
# Where it isn't the query that says how many rows of scores there are.
_MAX_ROWS: Final = 4096
_MAX_CLASSES: Final = 1 << 31


class OutputForm(Struct, frozen=True):
    """What an output looks like.

    Attributes:
        dtype: NumPy's name of the element type.
        shape: Axis lengths; None for an axis of any length.
        item_bytes: Bytes an element.
        is_open: Whether an axis has any length.
    """

    dtype: str
    shape: tuple[int | None, ...]
    item_bytes: int
    is_open: bool

    def fits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether an output may be so."""
        if dtype != self.dtype:
            return False
        if not self.is_open:
            return shape == self.shape
        return len(shape) == len(self.shape) and all(
            want is None or want == have for want, have in zip(self.shape, shape, strict=True)
        )


class AnswerForm(Struct, frozen=True):
    """What the answers of a model look like.

    Attributes:
        outputs: By name.
        names: Of all outputs.
        has_batch_axis: Whether each output has a row for each of the query's.
        top_k: Labels of a row, unless the query says otherwise; 0 where there are none.
        classes: How many classes there can be.
        max_rows: Rows of labels at most, where there is no batch axis.
    """

    outputs: dict[str, OutputForm]
    names: frozenset[str]
    has_batch_axis: bool = False
    top_k: int = 0
    classes: int = _MAX_CLASSES
    max_rows: int = 1


def answer_form(description: ModelDescription) -> AnswerForm:
    """Returns what the answers of a model look like."""
    outputs = {spec.name: _output_form(spec) for spec in description.outputs}
    names = frozenset(outputs)
    has_batch_axis = batch_axis(description) is not None
    rule = description.postprocess
    if not isinstance(rule, Classification):
        return AnswerForm(outputs, names, has_batch_axis)
    shape = outputs[rule.output].shape
    classes = shape[-1] or _MAX_CLASSES
    max_rows = _MAX_ROWS if len(shape) > 1 and shape[0] is None else 1
    return AnswerForm(outputs, names, has_batch_axis, rule.top_k, classes, max_rows)


def _output_form(spec: TensorSpec) -> OutputForm:
    shape = tuple([axis if isinstance(axis, int) else None for axis in spec.shape])
    return OutputForm(spec.dtype, shape, ITEM_BYTES[spec.dtype], None in shape)
