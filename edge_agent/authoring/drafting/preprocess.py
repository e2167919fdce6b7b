"""The section preprocess of a drafted model.yaml."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING, Any

from edge_agent.authoring.drafting import layouts, presets
from edge_agent.authoring.drafting.parts import covers_as, described_dtype
from edge_agent.authoring.native_tensors import covered
from edge_agent.model_yaml import HOLE

if TYPE_CHECKING:
    from edge_agent.authoring.drafting.parts import Draft, ImageInput, Wishes

RULES = ("shortest-side", "stretch", "letterbox")


def preprocess(made: Draft, image: ImageInput, wishes: Wishes) -> None:
    """Adds the section: what nobody says is a hole that names its choices."""
    section: dict[str, Any] = {"input": image.tensor.name}
    made.comments["preprocess"] = [
        "From an image file to the input; remove it where the input takes no image."
    ]
    _color(made, section, image, wishes)
    _resize(made, section, image, wishes)
    if described_dtype(image.tensor, is_image=True) != "uint8":
        _normalize(made, section, image, wishes)
    made.value["preprocess"] = section


def _color(made: Draft, section: dict[str, Any], image: ImageInput, wishes: Wishes) -> None:
    section["color"] = wishes.color or ("GRAY" if image.channels == 1 else HOLE)
    if section["color"] == HOLE:
        made.comments["preprocess.color"] = ["The order of the channels: RGB or BGR."]


def resize_choices(size: tuple[int, int], kernel: str) -> dict[str, dict[str, Any]]:
    """Returns what `--resize RULE` writes, by rule.

    Args:
        size: (height, width) of the input.
        kernel: The filter.
    """
    whole = {"size": list(size), "filter": kernel}
    short = layouts.short_side(size)
    return {
        "stretch": {"resize": {"rule": "stretch", **whole}},
        "letterbox": {"resize": {"rule": "letterbox", **whole, "fill": [114, 114, 114]}},
        "shortest-side": {
            "resize": {"rule": "shortest-side", "size": [short, short], "filter": kernel},
            "crop": {"rule": "center", "size": list(size)},
        },
    }


def _resize(made: Draft, section: dict[str, Any], image: ImageInput, wishes: Wishes) -> None:
    kernel = presets.PRESETS[wishes.preset].filter if wishes.preset else "bilinear"
    if image.size is None:
        section["resize"] = HOLE
        made.comments["preprocess.resize"] = [
            "The file leaves the image's size open. How an image is brought to a size, such as",
            "  {rule: stretch, size: [HEIGHT, WIDTH], filter: bilinear}",
        ]
        return
    choices = resize_choices(image.size, kernel)
    if wishes.resize:
        section |= choices[wishes.resize]
        return
    section["resize"] = HOLE
    lines = [f"  {_flow(one['resize'])}" for one in choices.values()]
    lines[-1] += f"  with, below it,  crop: {_flow(choices['shortest-side']['crop'])}"
    made.comments["preprocess.resize"] = ["How an image is brought to size, one of", *lines]


def _normalize(made: Draft, section: dict[str, Any], image: ImageInput, wishes: Wishes) -> None:
    channels = image.channels or 3
    if wishes.preset:
        arithmetic = presets.normalize(wishes.preset, channels)
        section |= {"normalize": arithmetic} if arithmetic else {}
        return
    section["normalize"] = HOLE
    lines = ["How pixels of 0 to 255 become numbers, one of"]
    for name in presets.PRESETS:
        arithmetic = presets.normalize(name, channels)
        if arithmetic:
            lines.append(f"  {_flow(arithmetic)}  # {name}")
    lines.append("or no normalize at all, where the model takes 0 to 255 as they are.")
    reach, likely = covered(image.tensor), covers_as(image)
    if reach:
        lines.append(
            f"The file's quantisation covers {reach[0]:.4g} to {reach[1]:.4g}"
            + (f", as with {' or '.join(likely)}." if likely else ".")
        )
    made.comments["preprocess.normalize"] = lines


def _flow(value: dict[str, Any]) -> str:
    return dumps(value).replace('"', "")
