"""A model.yaml made of what a model file says and what its author says; the rest are holes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from edge_agent import description as descriptions
from edge_agent.authoring.drafting import layouts
from edge_agent.authoring.drafting.parts import (
    Draft,
    ImageInput,
    Wishes,
    described_dtype,
    image_input,
)
from edge_agent.authoring.drafting.postprocess import postprocess
from edge_agent.authoring.drafting.preprocess import preprocess
from edge_agent.authoring.native_tensors import covered
from edge_agent.model_yaml import HOLE

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.model_facts import ModelFacts
    from edge_agent.backends.binding import NativeTensor

_AXIS: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def draft(facts: ModelFacts, wishes: Wishes, file: str, activation: str | None) -> Draft:
    """Drafts a model.yaml.

    Args:
        facts: What the file says.
        wishes: What its author says.
        file: Its path inside the bundle.
        activation: What turns its scores into probabilities, None where that isn't known.

    Raises:
        BadInputError: What the author says contradicts the file.
    """
    image = image_input(facts, wishes)
    made = Draft({"schema": descriptions.SCHEMA, "name": wishes.name, "version": wishes.version})
    made.comments["name"] = ["Trust rules match it. local/* is for this machine; else acme/camera."]
    made.value["task"] = wishes.task or facts.task or HOLE
    made.value |= {"summary": wishes.summary} if wishes.summary else {}
    made.value |= {"license": wishes.license} if wishes.license else {}
    made.value["inputs"] = [spec(one, facts, image) for one in facts.inputs]
    made.value["outputs"] = [spec(one, facts, None) for one in facts.outputs]
    made.value["engines"] = [{"engine": facts.engine, "file": file}]
    if image and image.channels != 4:
        preprocess(made, image, wishes)
    postprocess(made, facts, wishes, image is not None, activation)
    if made.value["task"] == HOLE:
        classifies = made.value["postprocess"] not in (HOLE, {"kind": "raw"})
        if classifies and image:
            made.value["task"] = "image-classification"
        else:
            made.comments["task"] = [
                "A word of the field: image-classification, object-detection, anomaly-detection,",
                "text-classification, time-series-forecasting, or another one.",
            ]
    if image and image.layout is None:
        made.comments["inputs"] = ["The layout of the image: NCHW or NHWC."]
    return made


def spec(tensor: NativeTensor, facts: ModelFacts, image: ImageInput | None) -> dict[str, Any]:
    """Returns a tensor as model.yaml describes it.

    Args:
        tensor: It.
        facts: The file that it is in.
        image: The input that takes an image.
    """
    is_image = image is not None and image.tensor is tensor
    made: dict[str, Any] = {"name": tensor.name, "dtype": described_dtype(tensor, is_image)}
    layout = image.layout if image and is_image else None
    made["shape"] = _axes(tensor, facts.axes.get(tensor.name, ()), layout, image)
    if is_image:
        made["layout"] = layout or HOLE
    elif tensor in facts.inputs and made["dtype"] != tensor.dtype:
        made["range"] = list(covered(tensor) or ())
    return made


def _axes(
    tensor: NativeTensor,
    names: tuple[str | None, ...],
    layout: str | None,
    image: ImageInput | None,
) -> list[int | str]:
    """Returns the axes; open ones have the file's own names where these are ones."""
    made: list[int | str] = []
    for index, axis in enumerate(tensor.shape):
        own = names[index] if index < len(names) else None
        if axis is not None:
            made.append(axis)
        elif layout and index == layouts.channel_axis(layout) and image and image.channels:
            made.append(image.channels)
        elif own and _AXIS.fullmatch(own):
            made.append(own)
        else:
            made.append(_invented(tensor.name, index, layout))
    return made


def _invented(tensor: str, index: int, layout: str | None) -> str:
    """Names an open axis; only the batch is taken to be of one length everywhere."""
    if index == 0:
        return "batch"
    side = index - layouts.first_side(layout) if layout else -1
    if side in (0, 1):
        return ("height", "width")[side]
    return f"axis{index}_of_" + re.sub(r"[^A-Za-z0-9_]", "_", tensor)[:40]
