"""The section postprocess of a drafted model.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edge_agent.authoring.native_tensors import shown
from edge_agent.errors import BadInputError
from edge_agent.model_yaml import HOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.authoring.drafting.model_facts import ModelFacts
    from edge_agent.authoring.drafting.parts import Draft, Wishes
    from edge_agent.backends.binding import NativeTensor

LABELS_FILE: Final = "labels.json"


def scores(facts: ModelFacts, count: int | None, output: str | None) -> list[NativeTensor]:
    """Returns the outputs that could hold one score a class.

    Args:
        facts: The file.
        count: How many classes there are, None where that isn't known.
        output: Its name, where the author gives one.
    """
    return [
        one
        for one in facts.outputs
        if one.shape
        and (len(one.shape) == 1 or (len(one.shape) == 2 and one.shape[0] in (1, None)))
        and one.shape[-1] not in (0, 1)
        and (count is None or one.shape[-1] in (count, None))
        and (output is None or one.name == output)
    ]


def labels_of(facts: ModelFacts, wishes: Wishes) -> tuple[str, ...] | None:
    """Returns the class names that the author gives, or else the file's."""
    return wishes.labels or facts.labels or None


def postprocess(
    made: Draft, facts: ModelFacts, wishes: Wishes, takes_image: bool, activation: str | None
) -> None:
    """Adds the section.

    Raises:
        BadInputError: The author's labels, or the output named, fit no output.
    """
    labels = labels_of(facts, wishes)
    found = scores(facts, len(labels) if labels else None, wishes.output)
    if not found and (wishes.labels or wishes.output):
        raise BadInputError(
            f"there are {len(wishes.labels or ())} labels, but the model's output is "
            f"{shown(facts.outputs)}",
            hint="give one label for each score: --labels FILE, and --output NAME",
        )
    if not found or not (labels or takes_image):
        made.value["postprocess"] = {"kind": "raw"}
        return
    output = found[0].name if len(found) == 1 else HOLE
    section = {
        "kind": "classification",
        "output": output,
        "activation": activation or HOLE,
        "labels": LABELS_FILE,
    }
    if labels:
        made.value["postprocess"] = section
        made.comments["postprocess"] = _told(found, output, activation)
        return
    if len(found) > 1 or len(facts.outputs) > 1:
        made.value["postprocess"] = {"kind": "raw"}
        return
    made.value["postprocess"] = HOLE
    made.comments["postprocess"] = [
        "The tensors as they are: {kind: raw}; or, with the class names in labels.json,",
        f"  {{kind: classification, output: {output!r}, activation: {activation or HOLE}, "
        f"labels: {LABELS_FILE}}}",
    ]


def _told(found: Sequence[NativeTensor], output: str, activation: str | None) -> list[str]:
    lines = []
    if output == HOLE:
        lines.append(f"The output with the scores: one of {shown(found)}.")
    if activation is None:
        lines.append("What makes scores of the output: softmax, sigmoid, or none.")
    else:
        lines.append(
            "The answer to noise "
            + ("sums to one already." if activation == "none" else "doesn't sum to one.")
        )
    return lines
