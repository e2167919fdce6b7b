"""What an ONNX file says of an image classifier, and a model.yaml made of it.

What the file doesn't say is assumed, and every assumption is told: a wrong one gives plausible
but wrong answers, so docs/BUNDLES.md says how to check it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge_agent import description as descriptions
from edge_agent import model_yaml
from edge_agent.authoring import sections
from edge_agent.authoring.drafting import layouts, presets
from edge_agent.backends import onnx
from edge_agent.errors import BadInputError, ModelFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.backends.base import ModelFile, Session
    from edge_agent.backends.binding import NativeTensor
    from edge_agent.description import ModelDescription
    from edge_agent.types import Tensor


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
        preset: One of `presets.PRESETS`, for models that take floats.
    """
    scaling = presets.PRESETS[preset]
    short = layouts.short_side(found.size)
    preprocess: dict[str, Any] = {
        "input": found.image.name,
        "color": "GRAY" if found.channels == 1 else "RGB",
        "resize": {"rule": "shortest-side", "size": [short, short], "filter": scaling.filter},
        "crop": {"rule": "center", "size": list(found.size)},
    }
    arithmetic = presets.normalize(preset, found.channels)
    if found.image.dtype != "uint8" and arithmetic:
        preprocess["normalize"] = arithmetic
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
    shape = tuple(axis if isinstance(axis, int) else 1 for axis in found.axes)
    scores = session.run({found.image.name: noise(shape, found.image.dtype)})[found.scores.name]
    return "none" if are_probabilities(scores) else "softmax"


def noise(shape: tuple[int, ...], dtype: str) -> Tensor:
    """Returns random pixels: 0 to 255 as uint8, else 0 to 1."""
    import numpy as np

    pixels = np.random.default_rng(0).integers(0, 256, shape)
    return (pixels if dtype == "uint8" else pixels / 255).astype(dtype)


def are_probabilities(scores: Tensor) -> bool:
    """Tells probabilities from logits: none is negative, and together they make one."""
    values = scores.astype("float64")
    return abs(float(values.sum()) - 1) < 1e-2 and float(values.min()) >= 0


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
    layout = layouts.told(image.shape, said)
    if layout:
        return layout
    raise BadInputError(
        f"the layout of the input {_shown([image])} can't be {said or 'told'}",
        path=path,
        hint="say --layout NCHW or --layout NHWC",
    )


def _shown(tensors: Sequence[NativeTensor]) -> str:
    return ", ".join(f"{one.name} {[axis or '?' for axis in one.shape]}" for one in tensors)
