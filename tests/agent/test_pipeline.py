"""Requests become input tensors in the engine's layout; outputs become answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_agent import model_yaml
from edge_agent.errors import BadInputError, ImageError, ModelFileError, TensorError
from edge_agent.images import ImageLimits
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request

from . import models

IMAGE = np.arange(192, dtype="f4").reshape(1, 3, 8, 8)


def pipeline(document: models.Yaml, **limits: int) -> Pipeline:
    labels = ("red", "green", "blue") if document["postprocess"]["kind"] != "raw" else ()
    return Pipeline(model_yaml.parse(models.text(document)), labels, ImageLimits(**limits))


def request(image: bytes | None = None, top_k: int | None = None, **tensors: Any) -> Request:
    arrays = {k: v if isinstance(v, np.ndarray) else np.array(v, "f4") for k, v in tensors.items()}
    return Request("m", "a source", image, arrays, top_k)


def test_an_image_becomes_the_tensor_in_the_engines_layout() -> None:
    made = pipeline(models.COLOUR).prepare(request(models.png((255, 51, 0), 16)), None)
    assert made["image"].shape == (1, 3, 8, 8)
    assert made["image"][0, :, 0, 0].tolist() == pytest.approx([1, 0.2, 0])
    turned = pipeline(models.COLOUR).prepare(request(models.png((255, 51, 0), 16)), "NHWC")
    assert turned["image"].shape == (1, 8, 8, 3)
    assert turned["image"].tolist() == made["image"].transpose(0, 2, 3, 1).tolist()
    assert turned["image"].flags.c_contiguous


@pytest.mark.parametrize("preprocess", [True, False])
def test_a_tensor_is_turned_into_the_engines_layout(preprocess: bool) -> None:
    document = models.COLOUR if preprocess else models.changed(models.COLOUR, "golden", ...)
    if not preprocess:  # a model that takes no image has layouts too
        document = models.changed(document, "preprocess", ...)
    asked = Request("m", "s", None, {"image": IMAGE})
    assert pipeline(document).prepare(asked, None)["image"].tolist() == IMAGE.tolist()
    turned = pipeline(document).prepare(asked, "NHWC")["image"]
    assert turned.tolist() == IMAGE.transpose(0, 2, 3, 1).tolist()
    assert turned.flags.c_contiguous


def two_layouts() -> models.Yaml:
    """The image is NHWC, another input NCHW, a third has none."""
    document = models.changed(models.COLOUR, "golden", ...)
    document["inputs"] = [
        {"name": "image", "dtype": "float32", "shape": ["N", 8, 8, 3], "layout": "NHWC"},
        {"name": "mask", "dtype": "float32", "shape": ["N", 1, "H", "W"], "layout": "NCHW"},
        {"name": "bias", "dtype": "float32", "shape": [1, 2, 3, 4]},
    ]
    return document


@pytest.mark.parametrize(
    ("layout", "image", "mask"),
    [
        (None, (1, 8, 8, 3), (1, 1, 5, 7)),
        ("NCHW", (1, 3, 8, 8), (1, 1, 5, 7)),
        ("NHWC", (1, 8, 8, 3), (1, 5, 7, 1)),
    ],
)
def test_each_tensor_has_a_layout_of_its_own(
    layout: Any, image: tuple[int, ...], mask: tuple[int, ...]
) -> None:
    bias = np.zeros((1, 2, 3, 4), "f4")
    given = request(models.png((1, 2, 3)), mask=np.zeros((1, 1, 5, 7), "f4"), bias=bias)
    made = pipeline(two_layouts()).prepare(given, layout)
    assert {name: value.shape for name, value in made.items()} == {
        "image": image,
        "mask": mask,
        "bias": (1, 2, 3, 4),
    }


def test_axes_are_compared_in_the_described_layout() -> None:
    bias = np.zeros((1, 2, 3, 4), "f4")
    given = request(models.png((1, 2, 3)), mask=np.zeros((2, 1, 5, 7), "f4"), bias=bias)
    for layout in (None, "NCHW", "NHWC"):
        with pytest.raises(TensorError, match="the axis 'N' is 2 in 'mask' and 1 elsewhere"):
            pipeline(two_layouts()).prepare(given, layout)


REFUSED: dict[str, tuple[models.Yaml, Request, type[BadInputError], str]] = {
    "nothing": (models.COLOUR, request(), TensorError, "the input 'image' is missing"),
    "one of two": (models.PAIR, request(left=[[1] * 4]), TensorError, "'right' is missing"),
    "another name": (
        models.PAIR,
        request(up=[[1] * 4]),
        TensorError,
        "the model has no input 'up'; it takes left, right",
    ),
    "an image for tensors": (
        models.PAIR,
        request(models.png((0, 0, 0)), left=[[1] * 4], right=[[1] * 4]),
        BadInputError,
        "the model acme/pair takes no image",
    ),
    "both": (
        models.COLOUR,
        Request("m", "a source", models.png((0, 0, 0)), {"image": IMAGE}),
        BadInputError,
        "both the image and a tensor feed 'image'",
    ),
    "no image": (models.COLOUR, request(b"text"), ImageError, ""),
    "out of range": (models.PAIR, request(left=[[11] * 4], right=[[1] * 4]), TensorError, "11"),
    "a shape": (models.ROWS, request(x=[[1, 2, 3]]), TensorError, "takes the shape ['N', 2]"),
    "a type": (models.ROWS, request(x=np.zeros((1, 2))), TensorError, "takes float32"),
    "the engine's layout": (
        models.COLOUR,
        Request("m", "a source", None, {"image": IMAGE.reshape(1, 8, 8, 3)}),
        TensorError,
        "(NCHW)",
    ),
    "no classes": (models.COLOUR, request(models.png((0, 0, 0)), 0), BadInputError, "top_k is 0"),
    "fewer": (models.COLOUR, request(models.png((0, 0, 0)), -1), BadInputError, "top_k is -1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_are_refused(case: str) -> None:
    document, given, error, words = REFUSED[case]
    with pytest.raises(error) as caught:
        pipeline(document).prepare(given, "NHWC" if case == "the engine's layout" else None)
    assert words in str(caught.value)
    assert caught.value.path == "a source"


def test_the_limits_on_images_hold() -> None:
    small = pipeline(models.COLOUR, max_pixels=63)
    with pytest.raises(ImageError):
        small.prepare(request(models.png((0, 0, 0))), None)
    pipeline(models.COLOUR, max_pixels=64).prepare(request(models.png((0, 0, 0))), None)


def test_a_tensor_is_not_changed_in_place() -> None:
    given = IMAGE.copy()
    given.flags.writeable = False
    made = pipeline(models.COLOUR).prepare(Request("m", "s", None, {"image": given}), "NHWC")
    assert made["image"].flags.writeable


def test_answers() -> None:
    outputs = {"scores": np.array([[0, 5, 1]], "f4")}
    assert [one.label for one in pipeline(models.COLOUR).answer(outputs, None)] == ["green", "blue"]
    assert [one.index for one in pipeline(models.COLOUR).answer(outputs, 3)] == [1, 2, 0]
    assert pipeline(models.PAIR).answer({"product": outputs["scores"]}, 3) == ()
    with pytest.raises(ModelFileError, match="labels"):
        pipeline(models.COLOUR).answer({"scores": np.zeros((1, 4))}, 1)


def many_colours() -> models.Yaml:
    document = models.changed(models.COLOUR, "inputs.0.shape", ["N", 3, 8, 8])
    return models.changed(document, "outputs.0.shape", ["N", 3])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_each_image_becomes_a_row(layout: Any) -> None:
    images = [models.png((255, 0, 0)), models.png((0, 0, 255))]
    made = pipeline(many_colours()).prepare_rows(images, {}, None, layout, "s")["image"]
    assert made.shape == ((2, 3, 8, 8) if layout == "NCHW" else (2, 8, 8, 3))
    channels = made if layout == "NCHW" else made.transpose(0, 3, 1, 2)
    assert channels[:, :, 0, 0].tolist() == [[1, 0, 0], [0, 0, 1]]


def test_images_of_different_sizes_make_no_rows() -> None:
    document = models.changed(many_colours(), "preprocess.resize", ...)
    document = models.changed(document, "inputs.0.shape", ["N", 3, "H", "W"])
    images = [models.png((255, 0, 0), size) for size in (8, 9)]
    with pytest.raises(ImageError, match="tensors of different sizes"):
        pipeline(document).prepare_rows(images, {}, None, None, "s")


def test_each_row_has_its_classes() -> None:
    made = pipeline(many_colours())
    scores = np.array([[0, 9, 0], [9, 0, 0]], "f4")
    ranked = made.answers({"scores": scores}, 1)
    assert [[one.label for one in row] for row in ranked] == [["green"], ["red"]]
    assert made.answers({"scores": scores[0]}, 1) == ranked[:1]
    assert pipeline(models.PAIR).answers({"product": scores}, 1) == ()
