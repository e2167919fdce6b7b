"""What `bundle init` writes for models of every kind."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import model_yaml, yaml_subset
from edge_agent.authoring.drafting import presets
from edge_agent.authoring.drafting.draft import draft
from edge_agent.authoring.drafting.model_facts import ModelFacts, read_facts
from edge_agent.authoring.drafting.parts import Wishes
from edge_agent.authoring.drafting.questions import answered, open_question
from edge_agent.authoring.drafting.text import text
from edge_agent.backends.base import ModelFile
from edge_agent.backends.binding import NativeTensor
from edge_agent.errors import BadInputError, ConfigError, ModelFileError

tflite = pytest.importorskip("tests.agent.backends.test_tflite")
WISHES = Wishes("acme/x", "1.0.0", "thing")


def tensor(name: str, dtype: str, *shape: int | None, scale: Any = None, zero: int = 0) -> Any:
    return NativeTensor(name, dtype, shape, scale, zero)


def facts(*inputs: Any, outputs: Any = None, engine: str = "onnx", **more: Any) -> ModelFacts:
    out = outputs or (tensor("y", "float32", 1, 3),)
    return ModelFacts(engine, inputs, out, more.pop("axes", {}), **more)


def drafted(one: ModelFacts, wishes: Wishes = WISHES, activation: str | None = "softmax") -> Any:
    data = text(draft(one, wishes, f"m.{one.engine}", activation))
    return yaml_subset.load(data)[0]


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 3, 8, 8), "NCHW"), ((1, 8, 8, 3), "NHWC"), ((None, 1, 8, 8), "NCHW"),
        ((1, 4, 8, 8), "NCHW"), ((1, 3, 8, 3), "???"), ((1, None, 8, 8), "???"),
    ],
)  # fmt: skip
def test_layout(shape: tuple[int | None, ...], layout: str) -> None:
    value = drafted(facts(tensor("x", "float32", *shape)))
    assert value["inputs"][0]["layout"] == layout


def test_what_is_no_image_gets_no_preprocess() -> None:
    for inputs in (
        (tensor("x", "float32", 1, 512, 7, 7),),
        (tensor("x", "float32", 8, 3, 8, 8),),
        (tensor("x", "int64", 1, 3, 8, 8),),
        (tensor("a", "float32", 1, 3, 8, 8), tensor("b", "float32", 1, 3, 8, 8)),
        (tensor("x", "float32", 1, 4, 8, 8),),
    ):
        value = drafted(facts(*inputs))
        assert "preprocess" not in value


def test_image_beside_another_input_gets_one() -> None:
    value = drafted(facts(tensor("x", "float32", 1, 3, 8, 8), tensor("size", "float32", 1, 2)))
    assert value["preprocess"]["input"] == "x"


def test_gray_images_have_no_hole_for_colour() -> None:
    value = drafted(facts(tensor("x", "float32", 1, 1, 8, 8)))
    assert value["preprocess"]["color"] == "GRAY"
    assert {"resize": "???", "normalize": "???"}.items() <= value["preprocess"].items()


def test_quantised_tensors_have_their_real_values() -> None:
    signed = tensor("x", "int8", 1, 4, scale=0.5, zero=-128)
    value = drafted(facts(signed, engine="tflite"))
    assert value["inputs"][0] == {
        "name": "x", "dtype": "float32", "shape": [1, 4], "range": [0.0, 127.5],
    }  # fmt: skip
    image = tensor("x", "int8", 1, 8, 8, 3, scale=1 / 255, zero=-128)
    value = drafted(facts(image, engine="tflite"))
    assert value["inputs"][0]["dtype"] == "float32"
    assert "range" not in value["inputs"][0]
    pixels = tensor("x", "uint8", 1, 8, 8, 3, scale=1 / 128, zero=128)
    value = drafted(facts(pixels, engine="tflite"))
    assert value["inputs"][0]["dtype"] == "uint8"
    assert "normalize" not in value["preprocess"]


def test_quantisation_tells_the_likely_preset() -> None:
    image = tensor("x", "int8", 1, 8, 8, 3, scale=1 / 255, zero=-128)
    made = text(draft(facts(image, engine="tflite"), WISHES, "m.tflite", None)).decode()
    assert "quantisation covers 0 to 1, as with zero-one." in made
    assert presets.reaching((0.0, 255.0)) == ["plain"]
    assert presets.reaching((-1.0, 1.0)) == ["minus-one-one", "efficientnet-lite"]


def test_open_axes_have_valid_names() -> None:
    axes = {"x": ("N", "a b", None), "y": ("N", None)}
    one = facts(
        tensor("x", "float32", None, None, None),
        outputs=(tensor("y:0", "float32", None, None),), axes=axes,
    )  # fmt: skip
    value = drafted(one)
    assert value["inputs"][0]["shape"] == ["N", "axis1_of_x", "axis2_of_x"]
    assert value["outputs"][0]["shape"] == ["batch", "axis1_of_y_0"]
    model_yaml.parse(text(draft(one, WISHES, "m.onnx", None)))


def test_sizes_that_are_open() -> None:
    image = tensor("x", "float32", None, 3, None, None)
    value = drafted(facts(image))
    assert value["inputs"][0]["shape"] == ["batch", 3, "height", "width"]
    assert value["preprocess"]["resize"] == "???"
    wishes = Wishes("a", "1.0.0", "t", size=64, resize="letterbox", color="RGB", preset="plain")
    value = drafted(facts(image), wishes)
    assert value["preprocess"]["resize"]["size"] == [64, 64]


def test_hostile_names_stay_in_their_place() -> None:
    name = "x\n# y: ???\nname: evil"
    image, output = tensor("x", "float32", 1, 3, 8, 8), tensor(name, "float32", 1, 3)
    made = text(draft(facts(image, outputs=(output,)), WISHES, "m.onnx", None))
    value = yaml_subset.load(made)[0]
    assert value["name"] == "acme/x"
    assert value["outputs"][0]["name"] == name


def test_labels_decide_about_a_classifier() -> None:
    image = tensor("x", "float32", 1, 3, 8, 8)
    named = Wishes("a", "1.0.0", labels=("a", "b", "c"))
    value = drafted(facts(image), named)
    assert value["task"] == "image-classification"
    assert value["postprocess"]["activation"] == "softmax"
    assert drafted(facts(image), named, None)["postprocess"]["activation"] == "???"
    two = (tensor("y", "float32", 1, 3), tensor("z", "float32", 1, 3))
    assert drafted(facts(image, outputs=two), named)["postprocess"]["output"] == "???"
    assert drafted(facts(image, outputs=two))["postprocess"] == {"kind": "raw"}
    with pytest.raises(BadInputError, match="there are 2 labels"):
        drafted(facts(image), Wishes("a", "1.0.0", labels=("a", "b")))


def with_labels(data: bytes, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("labels.txt", content)
    return data + stream.getvalue()


def test_labels_packed_into_a_tflite_file() -> None:
    data = tflite.relu(shape=[1, 3])
    path = Path("m.tflite")
    assert read_facts(ModelFile(data), path).labels == ()
    packed = with_labels(data, b"red\ngreen\n")
    assert read_facts(ModelFile(packed), path).labels == ("red", "green")
    for hostile in (
        with_labels(data, b"\xff\xfe\x00"),
        with_labels(data, bytes(64 << 20)),
        with_labels(data, b"[1,2]"),
        packed[:-30] + b"\xff" * 8 + packed[-22:],
        with_labels(data, b"a\n", zipfile.ZIP_LZMA),
        with_labels(data, b"a\n", zipfile.ZIP_BZIP2),
    ):
        assert read_facts(ModelFile(hostile), path).labels == ()


def test_labels_at_the_end_of_a_large_file() -> None:
    stream = io.BytesIO(tflite.relu(shape=[1, 3]) + bytes(9 << 20))
    with zipfile.ZipFile(stream, "a") as archive:  # its offsets count from the file's beginning
        archive.writestr("labels.txt", b"red\ngreen\n")
    assert read_facts(ModelFile(stream.getvalue()), Path("m.tflite")).labels == ("red", "green")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_archives_of_labels_say_nothing(data: Any) -> None:
    model = tflite.relu(shape=[1, 3])
    packed = bytearray(with_labels(b"", b"red\ngreen\n" * 5))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    labels = read_facts(ModelFile(model + packed), Path("m.tflite")).labels
    assert labels == () or len(labels) <= 10


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        ("{0: 'a', 1: 'b'}", ("a", "b")), ("['a', 'b']", ("a", "b")), ("{1: 'a'}", ()),
        ("__import__('os').abort()", ()), ("{0: 1}", ()), ("(" * 5000, ()), ("", ()),
        ("{[1]: 2}", ()), ("{{1}: 'a'}", ()), (r"{0: '\ud800'}", ()), ("9" * 5000, ()),
    ],
)  # fmt: skip
def test_names_in_onnx_metadata(names: str, labels: tuple[str, ...]) -> None:
    from onnx import helper, load_model_from_string

    from tests.agent import models

    model = load_model_from_string(models.colour())
    helper.set_model_props(model, {"names": names, "task": "classify"})
    found = read_facts(ModelFile(model.SerializeToString()), Path("m.onnx"))
    assert (found.labels, found.task, found.is_float) == (labels, "image-classification", True)


def test_what_model_yaml_cannot_describe_is_refused() -> None:
    from onnx import TensorProto, helper

    from tests.agent import models

    node = helper.make_node("Identity", ["x"], ["y"])
    data = models.onnx_file([node], {"x": [1]}, {"y": [1]}, dtype=TensorProto.STRING)
    with pytest.raises(ModelFileError, match=r"model\.yaml can't describe"):
        read_facts(ModelFile(data), Path("m.onnx"))
    with pytest.raises(BadInputError, match=r"neither .onnx nor .tflite"):
        read_facts(ModelFile(data), Path("m.pb"))


def test_questions_come_once_each_until_nothing_is_open() -> None:
    one = facts(
        tensor("x", "float32", None, 3, None, None), outputs=(tensor("y", "float32", 1, 3),)
    )
    wishes, asked = Wishes("a", "1.0.0"), set[str]()
    answers = {"size": "64", "color": "BGR", "resize": "stretch", "preset": "imagenet", "task": "t"}
    while question := open_question(one, wishes, asked):
        asked.add(question.key)
        assert question.default == ""  # an empty answer leaves a hole
        if question.key in answers:
            wishes = answered(wishes, question, answers[question.key])
    assert asked == {*answers, "labels"}
    assert (wishes.size, wishes.color, wishes.task) == (64, "BGR", "t")
    for key, bad in (("size", "0"), ("size", "x"), ("task", "A B"), ("color", "green")):
        again = open_question(one, Wishes("a", "1.0.0"), asked - {key})
        assert again
        assert again.key == key
        with pytest.raises(ConfigError):
            answered(wishes, again, bad)
