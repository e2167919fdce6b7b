"""What a model.yaml is drafted from, and the input of it that takes an image. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from edge_agent.authoring.drafting import layouts, presets
from edge_agent.authoring.native_tensors import covered

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.model_facts import ModelFacts
    from edge_agent.backends.binding import NativeTensor

_IMAGE_DTYPES: Final = ("float32", "float16", "uint8")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the author says; None where that is nothing.

    Attributes:
        name: Bundle name.
        version: Semantic version.
        task: A word of the field.
        labels: Class names, in the order of the scores.
        preset: One of `presets.PRESETS`.
        layout: Order of the image's axes, where the file leaves it open.
        size: Side of the image in pixels, where the file leaves it open.
        color: RGB, BGR or GRAY.
        resize: Rule of `description.Resize`.
        output: The output with the scores.
        summary: One line for people.
        license: An SPDX expression.
    """

    name: str
    version: str
    task: str | None = None
    labels: tuple[str, ...] | None = None
    preset: str | None = None
    layout: str | None = None
    size: int | None = None
    color: str | None = None
    resize: str | None = None
    output: str | None = None
    summary: str | None = None
    license: str | None = None


@dataclass(slots=True)
class Draft:
    """The content of a model.yaml, and what its lines are to be told with.

    Attributes:
        value: The content; what nobody knows is `model_yaml.HOLE`.
        comments: Lines of comment by the key that they stand above, such as ``preprocess.color``.
    """

    value: dict[str, Any]
    comments: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImageInput:
    """The input that takes an image.

    Attributes:
        tensor: It.
        layout: Order of its axes; None where that can't be told.
        channels: How many, 3 where the file leaves them open; None where the layout is open.
        size: (height, width) in pixels; None where the file and its author leave them open.
    """

    tensor: NativeTensor
    layout: str | None
    channels: int | None
    size: tuple[int, int] | None


def image_input(facts: ModelFacts, wishes: Wishes) -> ImageInput | None:
    """Finds the input that takes an image, None unless it is exactly one."""
    found = [one for one in facts.inputs if _may_be_image(one)]
    if len(found) != 1:
        return None
    tensor = found[0]
    layout = layouts.told(tensor.shape, wishes.layout, (1, 3, 4))
    if layout is None:
        return ImageInput(tensor, None, None, None)
    height, width = tensor.shape[layouts.first_side(layout) :][:2]
    height, width = height or wishes.size, width or wishes.size
    size = (height, width) if height and width else None
    return ImageInput(tensor, layout, tensor.shape[layouts.channel_axis(layout)] or 3, size)


def described_dtype(tensor: NativeTensor, is_image: bool) -> str:
    """Returns the dtype that model.yaml gives a tensor: quantised ones have their real values.

    Pixels that a model takes as uint8 stay what they are.
    """
    if tensor.scale is None or (is_image and tensor.dtype == "uint8"):
        return tensor.dtype
    return "float32"


def covers_as(image: ImageInput) -> list[str]:
    """Returns the presets whose numbers are those that the file's quantisation covers."""
    reach = covered(image.tensor)
    return presets.reaching(reach) if reach and image.tensor.dtype != "uint8" else []


def _may_be_image(tensor: NativeTensor) -> bool:
    if len(tensor.shape) != 4 or tensor.shape[0] not in (1, None):
        return False
    if described_dtype(tensor, is_image=True) not in _IMAGE_DTYPES:
        return False
    return any(axis in (1, 3, 4, None) for axis in (tensor.shape[1], tensor.shape[3]))
