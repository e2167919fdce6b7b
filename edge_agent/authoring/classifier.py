"""What an ONNX file says of an image classifier, and a model.yaml made of it.

What the file doesn't say is assumed, and every assumption is told: a wrong one gives plausible
but wrong answers, so docs/BUNDLES.md says how to check it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_agent import description as descriptions
from edge_agent import model_yaml
from edge_agent.authoring import sections
from edge_agent.backends import onnx
from edge_agent.errors import BadInputError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.backends.base import ModelFile, Session
    from edge_agent.backends.binding import NativeTensor
    from edge_agent.description import ModelDescription


class Preset(NamedTuple):
    """How pixels become numbers: `description.Normalize`, and the filter of the resize."""

    divisor: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    filter: str = "bilinear"


PRESETS: Final = {
    "imagenet": Preset(255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "zero-one": Preset(255.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "minus-one-one": Preset(127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    "efficientnet-lite": Preset(1.0, (127.0,) * 3, (128.0,) * 3, "bicubic"),
}


@dataclass(frozen=True, slots=True)
class Classifier:
    """An image classifier as its file shows it.

    Attributes:
        image: Its input, four axes.
        scores: The output with one score a class.
        layout: Order of the image's axes.
        size: (height, width) in pixels.
        channels: 1 or 3.
    """

    image: NativeTensor
    scores: NativeTensor
    layout: str
    size: tuple[int, int]
    channels: int

    @property
    def axes(self) -> tuple[int | str, ...]:
        """Shape of the input, its batch axis named where it is open."""
        batch = self.image.shape[0] or "batch"
        if self.layout == "NCHW":
            return (batch, self.channels, *self.size)
        return (batch, *self.size, self.channels)


def look(
    model: ModelFile,
    path: str,
    classes: int,
    layout: str | None,
    side: int | None,
    output: str | None,
) -> Classifier:
    """Finds out what can be known of a classifier.

    Args:
        model: The ONNX file.
        path: Its name, for messages.
        classes: How many labels there are.
        layout: The layout, where the file leaves it open.
        side: Height and width in pixels, where the file leaves them open.
        output: The output with the scores, where several could be.

    Raises:
        ModelFileError: ONNX Runtime refuses it, or it is no classifier of images.
        BadInputError: It leaves something open, or the labels don't fit.
    """
    image, scores = _the_two_tensors(model, path, classes, output)
    layout = _layout(image, path, layout)
    height, width = image.shape[2:4] if layout == "NCHW" else image.shape[1:3]
    height, width = height or side, width or side
    if height is None or width is None:
        raise BadInputError(
            f"the input {image.name!r} leaves the image's size open",
            path=path,
            hint="say --size PIXELS",
        )
    channels = image.shape[1 if layout == "NCHW" else 3] or 3
    return Classifier(image, scores, layout, (height, width), channels)


def describe(found: Classifier, name: str, version: str, file: str, preset: str) -> dict[str, Any]:
    """Builds the content of model.yaml, with softmax assumed and without a golden input.

    Args:
        found: The classifier.
        name: Bundle name.
        version: Semantic version.
        file: Path of the model file inside the bundle.
        preset: One of `PRESETS`, for models that take floats.
    """
    scaling = PRESETS[preset]
    # The usual proportion: 256 scaled, 224 cut out.
    short = -(-max(found.size) * 8 // 7)
    preprocess: dict[str, Any] = {
        "input": found.image.name,
        "color": "GRAY" if found.channels == 1 else "RGB",
        "resize": {"rule": "shortest-side", "size": [short, short], "filter": scaling.filter},
        "crop": {"rule": "center", "size": list(found.size)},
    }
    if found.image.dtype != "uint8":
        preprocess["normalize"] = {
            "divisor": scaling.divisor,
            "mean": list(scaling.mean[: found.channels]),
            "std": list(scaling.std[: found.channels]),
        }
    return {
        "schema": descriptions.SCHEMA,
        "name": name,
        "version": version,
        "task": "image-classification",
        "inputs": [
            {
                "name": found.image.name,
                "dtype": found.image.dtype,
                "shape": list(found.axes),
                "layout": found.layout,
            }
        ],
        "outputs": [
            {
                "name": found.scores.name,
                "dtype": found.scores.dtype,
                "shape": [axis or f"axis{i}" for i, axis in enumerate(found.scores.shape)],
            }
        ],
        "engines": [{"engine": "onnx", "file": file}],
        "preprocess": preprocess,
        "postprocess": {
            "kind": "classification",
            "output": found.scores.name,
            "activation": "softmax",
            "labels": "labels.json",
        },
    }


def activation(found: Classifier, session: Session) -> str:
    """Tells probabilities from logits by what the model answers to noise.

    Returns:
        ``none`` where the scores are probabilities already, else ``softmax``.
    """
    import numpy as np

    shape = tuple(axis if isinstance(axis, int) else 1 for axis in found.axes)
    random, dtype = np.random.default_rng(0), found.image.dtype
    pixels = random.integers(0, 256, shape)
    noise = (pixels if dtype == "uint8" else pixels / 255).astype(dtype)
    scores = session.run({found.image.name: noise})[found.scores.name].astype(np.float64)
    sums_to_one = abs(float(scores.sum()) - 1) < 1e-2
    return "none" if sums_to_one and float(scores.min()) >= 0 else "softmax"


def slug(text: str) -> str:
    """Returns a text as one component of a bundle name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "model"


def parse(value: dict[str, Any]) -> ModelDescription:
    """Parses the content of a model.yaml as a device will."""
    return model_yaml.parse(sections.to_yaml(value))


def _the_two_tensors(
    model: ModelFile, path: str, classes: int, output: str | None
) -> tuple[NativeTensor, NativeTensor]:
    inputs, outputs = onnx.describe(model, path)
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        raise ModelFileError(
            f"is no classifier of images: it takes {_shown(inputs)}",
            path=path,
            hint="write a model.yaml for it: docs/BUNDLES.md",
        )
    if inputs[0].dtype not in ("float32", "float16", "uint8"):
        raise ModelFileError(f"takes images as {inputs[0].dtype}", path=path)
    fitting = [one for one in outputs if one.shape and one.shape[-1] in (classes, None)]
    if output is not None:
        fitting = [one for one in fitting if one.name == output]
    if not fitting:
        raise BadInputError(
            f"there are {classes} labels, but the model's output is {_shown(outputs)}", path=path
        )
    if len(fitting) > 1:
        raise BadInputError(
            f"several outputs could hold the scores: {_shown(fitting)}",
            path=path,
            hint="say --output NAME",
        )
    return inputs[0], fitting[0]


def _layout(image: NativeTensor, path: str, said: str | None) -> str:
    channel_axes: dict[str, int | None] = {"NCHW": image.shape[1], "NHWC": image.shape[3]}
    sure = [name for name, axis in channel_axes.items() if axis in (1, 3)]
    if said and channel_axes[said] in (1, 3, None):
        return said
    if said is None and len(sure) == 1:
        return sure[0]
    raise BadInputError(
        f"the layout of the input {_shown([image])} can't be {said or 'told'}",
        path=path,
        hint="say --layout NCHW or --layout NHWC",
    )


def _shown(tensors: Sequence[NativeTensor]) -> str:
    return ", ".join(f"{one.name} {[axis or '?' for axis in one.shape]}" for one in tensors)
