"""What an ONNX file says of an image classifier, and a model.yaml made of it.

What the file doesn't say is assumed, and every assumption is told: a wrong one gives plausible
but wrong answers, so docs/BUNDLES.md says how to check it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from edge_agent import model_yaml
from edge_agent.authoring import sections
from edge_agent.authoring.drafting.draft import draft
from edge_agent.authoring.drafting.model_facts import ModelFacts
from edge_agent.authoring.drafting.parts import image_input
from edge_agent.authoring.native_tensors import shown
from edge_agent.authoring.noise import are_probabilities, noise
from edge_agent.backends import onnx
from edge_agent.errors import BadInputError, ModelFileError
from edge_agent.model_yaml import HOLE

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.parts import ImageInput, Wishes
    from edge_agent.backends.base import ModelFile, Session
    from edge_agent.description import ModelDescription

_CHANNELS: Final = (1, 3)


def describe(model: ModelFile, path: str, wishes: Wishes, file: str) -> dict[str, Any]:
    """Returns the content of a model.yaml, with softmax assumed and without a golden input.

    Args:
        model: The ONNX file.
        path: Its name, for messages.
        wishes: What its author says, and what is assumed; the order of channels is RGB.
        file: Path of the model file inside the bundle.

    Raises:
        ModelFileError: ONNX Runtime refuses it, or it is no classifier of images.
        BadInputError: It leaves something open, or the labels don't fit.
    """
    inputs, outputs = onnx.describe(model, path)
    facts = ModelFacts("onnx", tuple(inputs), tuple(outputs), axes={})
    image = image_input(facts, wishes)
    if len(inputs) != 1 or image is None:
        raise ModelFileError(
            f"is no classifier of images: it takes {shown(inputs)}",
            path=path,
            hint="write a model.yaml for it: docs/BUNDLES.md",
        )
    _require_known(image, path, wishes.layout)
    wishes = replace(wishes, color="GRAY" if image.channels == 1 else "RGB")
    value = draft(facts, wishes, file, "softmax").value
    if value["postprocess"]["output"] == HOLE:
        raise BadInputError(
            f"several outputs could hold the scores: {shown(outputs)}",
            path=path,
            hint="say --output NAME",
        )
    return value


def _require_known(image: ImageInput, path: str, said: str | None) -> None:
    if image.layout is None or image.channels not in _CHANNELS:
        raise BadInputError(
            f"the layout of the input {shown([image.tensor])} can't be {said or 'told'}",
            path=path,
            hint="say --layout NCHW or --layout NHWC",
        )
    if image.size is None:
        raise BadInputError(
            f"the input {image.tensor.name!r} leaves the image's size open",
            path=path,
            hint="say --size PIXELS",
        )


def activation(value: dict[str, Any], session: Session) -> str:
    """Tells probabilities from logits by what the model answers to noise.

    Args:
        value: The content of its model.yaml.
        session: The model.

    Returns:
        ``none`` where the scores are probabilities already, else ``softmax``.
    """
    spec, output = value["inputs"][0], value["postprocess"]["output"]
    shape = tuple(axis if isinstance(axis, int) else 1 for axis in spec["shape"])
    outputs = session.run({spec["name"]: noise(shape, spec["dtype"])})
    return "none" if are_probabilities(outputs[output]) else "softmax"


def parse(value: dict[str, Any]) -> ModelDescription:
    """Parses the content of a model.yaml as a device will."""
    return model_yaml.parse(sections.to_yaml(value))
