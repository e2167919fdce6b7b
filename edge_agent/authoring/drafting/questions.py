"""What only the author of a model knows, as questions for a terminal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_agent.authoring import naming
from edge_agent.authoring.drafting import postprocess as draft_postprocess
from edge_agent.authoring.drafting import presets
from edge_agent.authoring.drafting.parts import covers_as, described_dtype, image_input
from edge_agent.authoring.drafting.preprocess import RULES
from edge_agent.authoring.source_files import read_labels
from edge_agent.errors import ConfigError

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.model_facts import ModelFacts
    from edge_agent.authoring.drafting.parts import Wishes

_MAX_SIDE: Final = 16384


class Question(NamedTuple):
    """One question.

    Attributes:
        key: The attribute of `Wishes` that the answer becomes.
        text: What is asked.
        choices: The only answers; none where any will do.
        default: What an empty answer means; empty leaves a hole.
    """

    key: str
    text: str
    choices: tuple[str, ...] = ()
    default: str = ""


def open_question(facts: ModelFacts, wishes: Wishes, asked: set[str]) -> Question | None:
    """Returns the next question, None where there is none.

    Args:
        facts: What the file says.
        wishes: What its author has said by now.
        asked: The keys that were asked for already.
    """
    for question in (*_of_image(facts, wishes), *_of_scores(facts, wishes)):
        if question.key not in asked and getattr(wishes, question.key) is None:
            return question
    if "task" not in asked and not (wishes.task or facts.task):
        likely = "image-classification" if _classifies_images(facts, wishes) else ""
        return Question("task", "Its task, a word such as object-detection", default=likely)
    return None


def answered(wishes: Wishes, question: Question, answer: str) -> Wishes:
    """Returns the wishes with an answer.

    Raises:
        ConfigError: The answer isn't one of the choices, or no number.
        BadInputError: The labels can't be read.
    """
    if question.choices and answer not in question.choices:
        raise ConfigError(f"it is one of {', '.join(question.choices)}")
    if question.key == "labels":
        return replace(wishes, labels=read_labels(Path(answer)))
    if question.key == "size":
        if not (answer.isascii() and answer.isdigit() and 0 < int(answer[:6]) <= _MAX_SIDE):
            raise ConfigError(f"it is a number from 1 to {_MAX_SIDE}")
        return replace(wishes, size=int(answer))
    if question.key == "task":
        naming.check_task(answer)
        return replace(wishes, task=answer)
    changes: dict[str, str] = {question.key: answer}
    return replace(wishes, **changes)  # type: ignore[arg-type]


def _of_image(facts: ModelFacts, wishes: Wishes) -> list[Question]:
    image = image_input(facts, wishes)
    if image is None:
        return []
    if image.layout is None:
        return [Question("layout", f"Layout of {image.tensor.name!r}", ("NCHW", "NHWC"))]
    if image.channels == 4:
        return []
    asked = []
    if image.size is None:
        asked.append(Question("size", "Side of the image in pixels, which the file leaves open"))
    if image.channels == 3:
        asked.append(Question("color", "Order of the channels", ("RGB", "BGR")))
    asked.append(Question("resize", "How an image is brought to size", RULES))
    if described_dtype(image.tensor, is_image=True) != "uint8":
        likely = covers_as(image)
        default = likely[0] if len(likely) == 1 else ""
        asked.append(Question("preset", "Scaling of pixel values", tuple(presets.PRESETS), default))
    return asked


def _of_scores(facts: ModelFacts, wishes: Wishes) -> list[Question]:
    if draft_postprocess.labels_of(facts, wishes) or image_input(facts, wishes) is None:
        return []
    found = draft_postprocess.scores(facts, None, wishes.output)
    if len(found) != 1 or len(facts.outputs) > 1:
        return []
    return [Question("labels", f"File with the class names of {found[0].name!r}, one a line")]


def _classifies_images(facts: ModelFacts, wishes: Wishes) -> bool:
    labels = draft_postprocess.labels_of(facts, wishes)
    fitting = draft_postprocess.scores(facts, len(labels) if labels else None, wishes.output)
    return bool(labels and fitting and image_input(facts, wishes))
