"""Scores to labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from edge_agent.errors import DescriptionError, ModelFileError, TensorError
from edge_agent.types import ScoredLabel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from edge_agent.description import Classification
    from edge_agent.types import Scores, Tensor

MAX_LABELS_BYTES: Final = 4 * 1024 * 1024


def parse_labels(data: bytes, path: str) -> tuple[str, ...]:
    """Parses a labels file: a JSON array of at least one string, in the order of the scores.

    Raises:
        DescriptionError: It is anything else.
    """
    try:
        labels = tuple(msgspec.json.decode(data, type=list[str]))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DescriptionError(f"is not a JSON array of strings: {error}", path=path) from error
    if not labels:
        raise DescriptionError("has no labels", path=path)
    return labels


def rank(
    output: Tensor, rule: Classification, labels: Sequence[str], top_k: int
) -> tuple[ScoredLabel, ...]:
    """Turns one output into the best classes, best first; equal outputs keep the class order.

    Args:
        output: Shape [classes] or [1, classes], any numeric dtype.
        rule: The activation.
        labels: One a class.
        top_k: How many to return; more than there are means all.

    Raises:
        ModelFileError: The output doesn't have one number a label.
        TensorError: One of them isn't finite.
    """
    if output.shape[-1:] != (len(labels),) or output.size != len(labels):
        raise ModelFileError(
            f"the output {rule.output!r} has the shape {list(output.shape)}, {rule.labels} has "
            f"{len(labels)} labels"
        )
    values = np.asarray(output, dtype=np.float64).reshape(-1)
    if not np.isfinite(values).all():
        raise TensorError(
            f"the model's answer isn't finite numbers: the output {rule.output!r}",
            hint="is the input what the model was made for?",
        )
    scores = _activate(values, rule.activation)
    # By the values: every activation keeps their order, and rounds small ones to the same score.
    best = _largest(values, top_k)
    return tuple(ScoredLabel(int(i), labels[int(i)], float(scores[i])) for i in best)


def _largest(values: Scores, count: int) -> NDArray[np.intp]:
    """Returns the places of the largest values, the largest first; of equal ones the first."""
    among = np.arange(values.size)
    if count < values.size:  # only those that come into question are sorted
        among = np.flatnonzero(values >= np.partition(values, -count)[-count])
    return among[np.argsort(-values[among], kind="stable")][:count]


def _activate(values: Scores, activation: str) -> Scores:
    if activation == "softmax":
        with np.errstate(over="ignore"):  # exp(-inf) is the right answer
            powers = np.exp(values - values.max())
        return np.asarray(powers / powers.sum())
    if activation == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(values, -700, 700))))
    return values
