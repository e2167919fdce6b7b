"""model.yaml: each rule with the line that its error names, the schema, and the digest."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent import description, keyrings, model_yaml, yaml_subset
from edge_agent.errors import DescriptionError

from . import models

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription

DEMO = (keyrings.DEMO_BUNDLE / "model.yaml").read_bytes()

# Two inputs, so that rules about several of them can be broken; lines are what is tested.
BASE = """\
schema: edge-agent/model/v1
name: acme/net
version: 1.0.0
task: image-classification
inputs:
  - {name: image, dtype: float32, shape: [1, 3, 8, 8], layout: NCHW, range: [0, 1]}
  - {name: bias, dtype: float32, shape: [1, 4]}
outputs:
  - {name: scores, dtype: float32, shape: [1, 4]}
  - {name: mask, dtype: uint8, shape: [8, 8]}
engines:
  - {engine: onnx, file: a.onnx}
  - {engine: tflite, file: a.tflite, layout: NHWC}
preprocess:
  input: image
  color: RGB
  resize: {rule: stretch, size: [8, 8], filter: box}
  normalize: {divisor: 255, mean: [0, 0, 0], std: [1, 1, 1]}
postprocess:
  kind: classification
  output: scores
  activation: softmax
  labels: labels.json
golden:
  image: golden/a.png
  tensors: {bias: golden/bias.npy}
  top: {index: 1, score: 0.5, tolerance: 0.1}
"""

# What is replaced, by what, and the line and words of the error.
STRUCTURE: list[tuple[str, str, int, str]] = [
    ("schema: edge-agent/model/v1", "schema: edge-agent/model/v2", 1, "schema: Invalid enum value"),
    ("name: acme/net", "name: Acme/net", 2,
     "name: 'Acme/net' is not a bundle name: lower-case letters, digits, '.', '_' and '-', in"),
    ("name: acme/net", "name: acme//net", 2, "name: "),
    ("name: acme/net", "name: ../net", 2, "name: "),
    ("name: acme/net", 'name: "acme/net\\n"', 2, "name: "),
    ("name: acme/net", f"name: {'a' * 129}", 2, "name: Expected `str` of length <= 128"),
    ("version: 1.0.0", "version: 1.0", 3, "version: Expected `str`, got `float`"),
    ("version: 1.0.0", "version: 1.0.0.0", 3,
     "version: '1.0.0.0' is not a semantic version: write three numbers, such as 1.0.0"),
    ("version: 1.0.0", "version: 01.0.0", 3, "version: "),
    ("version: 1.0.0", 'version: "1.0.0\\n"', 3, "version: "),
    ("task: image-classification", "task: Image", 4, "task: 'Image' is not a task: lower-"),
    ("task: image-classification", f"task: t\nsummary: {'s' * 201}", 5, "summary: "),
    ("task: image-classification", "tasks: x", 4, "tasks: unknown key"),
    ("task: image-classification", '"\\e[31m": x', 4, r"\x1b[31m: unknown key"),
    ("task: image-classification", '"a` - at `$.name": x', 4, "unknown key"),
    ("task: image-classification\n", "", 1, "missing required field `task`"),
    ("task: image-classification", "task: t\npipeline_digest: sha256:1", 5,
     "pipeline_digest: 'sha256:1' is not a digest: sha256: and 64 hex"),
    ("dtype: uint8", "dtype: uint32", 10, "outputs[1].dtype: Invalid enum value 'uint32'"),
    ("dtype: uint8, ", "", 10, "outputs[1]: Object missing required field `dtype`"),
    ("dtype: uint8", "dtype: uint8, zero: 1", 10, "outputs[1].zero: unknown key"),
    ("shape: [8, 8]", "shape: [8, 0]", 10, "outputs[1].shape[1]: Expected `int` >= 1"),
    ("shape: [8, 8]", "shape: [8, -1]", 10, "outputs[1].shape[1]: "),
    ("shape: [8, 8]", "shape: [8, 8.5]", 10, "outputs[1].shape[1]: "),
    ("shape: [8, 8]", "shape: [8, true]", 10, "outputs[1].shape[1]: "),
    ("shape: [8, 8]", "shape: [8, two words]", 10,
     "outputs[1].shape[1]: 'two words' is not the name of an axis: letters, digits and '_'"),
    ("shape: [8, 8]", "shape: [1, 1, 1, 1, 1, 1, 1, 1, 1]", 10, "outputs[1].shape: "),
    ("shape: [8, 8]", "shape: 8", 10, "outputs[1].shape: Expected `array`"),
    ("layout: NCHW", "layout: CHW", 6,
     "inputs[0].layout: Invalid enum value 'CHW': allowed are NCHW, NHWC"),
    ("range: [0, 1]", "range: [0]", 6, "inputs[0].range: "),
    ("range: [0, 1]", "range: [0, .inf]", 6, "inputs[0].range[1]: "),
    ("range: [0, 1]", "range: [0, .nan]", 6, "inputs[0].range[1]: "),
    ("name: image,", "name: '',", 6, "inputs[0].name: "),
    ("engine: onnx", "engine: torch", 12,
     "engines[0].engine: Invalid enum value 'torch': allowed are onnx, tflite"),
    ("file: a.onnx", "file: ''", 12, "engines[0].file: "),
    ("file: a.onnx", "file: a.onnx, inputs: {image: ''}", 12, "engines[0].inputs: "),
    ("file: a.onnx", "file: a.onnx, inputs: {'': image}", 12, "engines[0].inputs: "),
    ("file: a.onnx", "file: a.onnx, inputs: {image: 3}", 12, "engines[0].inputs: "),
    ("color: RGB", "color: YUV", 16, "preprocess.color: "),
    ("color: RGB", "color: RGB\n  background: [0, 0, 256]", 17, "preprocess.background[2]: "),
    ("rule: stretch", "rule: fit", 17, "preprocess.resize.rule: "),
    ("size: [8, 8]", "size: [8, 20000]", 17, "preprocess.resize.size[1]: "),
    ("size: [8, 8]", "size: [8]", 17, "preprocess.resize.size: "),
    ("filter: box", "filter: cubic", 17, "preprocess.resize.filter: "),
    ("divisor: 255", "divisor: 0", 18, "preprocess.normalize.divisor: "),
    ("divisor: 255", "divisor: 1e-40", 18, "preprocess.normalize.divisor: "),
    ("std: [1, 1, 1]", "std: [1, 1, 0]", 18, "preprocess.normalize.std[2]: "),
    ("std: [1, 1, 1]", "std: [1, 1, 1e40]", 18, "preprocess.normalize.std[2]: "),
    ("mean: [0, 0, 0]", "mean: [1e39, 0, 0]", 18, "preprocess.normalize.mean[0]: "),
    ("mean: [0, 0, 0]", "mean: [0, 0, 0, 0, 0]", 18, "preprocess.normalize.mean: "),
    ("mean: [0, 0, 0]", "mean: []", 18, "preprocess.normalize.mean: "),
    ("kind: classification", "kind: detection", 20,
     "postprocess.kind: Invalid value 'detection': allowed are classification, raw"),
    ("  kind: classification\n", "", 19, "postprocess: Object missing required field `kind`"),
    ("kind: classification", "kind: raw", 21, "postprocess.output: unknown key"),
    ("activation: softmax", "activation: relu", 22, "postprocess.activation: "),
    ("labels: labels.json", "labels: l\n  top_k: 0", 24, "postprocess.top_k: "),
    ("labels: labels.json", "labels: l\n  top_k: 1001", 24, "postprocess.top_k: "),
    ("labels: labels.json", "labels: l\n  top_k: true", 24, "postprocess.top_k: "),
    ("golden:\n", "contract: {min_confidence: 1.5}\ngolden:\n", 24, "contract.min_confidence: "),
    ("golden:\n", "contract: {latency_ms: 0}\ngolden:\n", 24, "contract.latency_ms: "),
    ("golden:\n", "contract: {memory_mib: 0}\ngolden:\n", 24, "contract.memory_mib: "),
    ("golden:\n", "contract: {leave_device: always}\ngolden:\n", 24,
     "contract.leave_device: Invalid enum value 'always': allowed are model-input, never"),
    ("index: 1", "index: -1", 27, "golden.top.index: "),
    ("tolerance: 0.1", "tolerance: -0.1", 27, "golden.top.tolerance: "),
    (BASE, "[1, 2]", 1, "must be a mapping"),
    (BASE, "5", 1, "must be a mapping"),
    (BASE, BASE.replace("outputs:\n", "outputs: []\nx:\n", 1), 8, "outputs: "),
]  # fmt: skip

RULES: list[tuple[str, str, int, str]] = [
    ("name: bias,", "name: image,", 7, "inputs[1]: 'image' is described twice"),
    ("name: mask", "name: scores", 10, "outputs[1]: 'scores' is described twice"),
    (
        "engine: tflite, file: a.tflite, layout: NHWC",
        "engine: onnx, file: b.onnx",
        13,
        "engines[1]: 'onnx' is described twice",
    ),
    ("range: [0, 1]", "range: [1, 0]", 6, "inputs[0].range: the first number must be below"),
    ("range: [0, 1]", "range: [1, 1]", 6, "inputs[0].range: the first number must be below"),
    ("shape: [8, 8]", "shape: [8, 8], range: [2, 1]", 10, "outputs[1].range: the first"),
    ("shape: [8, 8]", "shape: [8, 8], range: [0, 256]", 10, "outputs[1].range: goes beyond uint8"),
    ("shape: [8, 8]", "shape: [8, 8], range: [-1, 255]", 10, "outputs[1].range: goes beyond uint8"),
    ("uint8, shape: [8, 8]", "int16, shape: [8, 8], range: [0, 32768]", 10, "beyond int16"),
    ("uint8, shape: [8, 8]", "float16, shape: [8, 8], range: [0, 65505]", 10, "beyond float16"),
    ("uint8, shape: [8, 8]", "float32, shape: [8, 8], range: [0, 3.5e38]", 10, "beyond float32"),
    ("uint8, shape: [8, 8]", "bool, shape: [8, 8], range: [0, 2]", 10, "beyond bool"),
    ("shape: [8, 8]", "shape: [16384, 16385]", 10, "outputs[1].shape: makes a tensor of more"),
    ("shape: [1, 4]}\noutputs", "shape: [N, 999999999999]}\noutputs", 7, "inputs[1].shape: makes"),
    ("shape: [8, 8]", "shape: [8, 8], layout: NHWC", 10, "outputs[1].layout: NHWC needs 4 axes"),
    ("shape: [1, 4]}\noutputs", "shape: [1, 4], layout: NCHW}\noutputs", 7, "inputs[1].layout: "),
    ("file: a.onnx", "file: a.tflite", 12, "engines[0].file: the onnx engine reads .onnx files"),
    ("file: a.tflite", "file: a.TFLITE", 13, "engines[1].file: the tflite engine reads .tflite"),
    ("file: a.onnx", "file: a.onnx, inputs: {x: y}", 12, "engines[0].inputs: no input is called"),
    ("file: a.onnx", "file: a.onnx, outputs: {x: y}", 12, "engines[0].outputs: no output is"),
    (
        "file: a.onnx",
        "file: a.onnx, inputs: {image: x, bias: x}",
        12,
        "engines[0].inputs: two inputs are called 'x' in the file",
    ),
    (
        "file: a.onnx",
        "file: a.onnx, outputs: {mask: scores}",
        12,
        "engines[0].outputs: two outputs are called 'scores' in the file",
    ),
    ("input: image", "input: picture", 15, "preprocess.input: no input is called 'picture'"),
    ("input: image", "input: bias", 7, "inputs[1]: an image feeds this input, so it must say"),
    ("shape: [1, 3, 8, 8]", "shape: [1, 8, 8, 3]", 6, "inputs[0].shape: NCHW and RGB need 3"),
    ("color: RGB", "color: GRAY", 6, "inputs[0].shape: NCHW and GRAY need 1"),
    ("shape: [1, 3, 8, 8]", "shape: [1, C, 8, 8]", 6, "inputs[0].shape: NCHW and RGB need 3"),
    ("shape: [1, 3, 8, 8]", "shape: [2, 3, 8, 8]", 6, "inputs[0].shape: the batch axis must be 1"),
    ("rule: stretch", "rule: shortest-side", 14, "preprocess: shortest-side leaves the long side"),
    (
        "rule: stretch, size: [8, 8], filter: box}",
        "rule: shortest-side, size: [8, 9], filter: box}\n  crop: {rule: center, size: [8, 8]}",
        17,
        "preprocess.resize.size: shortest-side takes the same number twice",
    ),
    (
        "filter: box}",
        "filter: box}\n  crop: {rule: center, size: [8, 9]}",
        18,
        "preprocess.crop.size: is larger than the resized image",
    ),
    ("size: [8, 8]", "size: [8, 9]", 14, "preprocess: makes 8x9 images, the input 'image' wants"),
    (
        "filter: box}",
        "filter: box}\n  crop: {rule: center, size: [7, 8]}",
        14,
        "preprocess: makes 7x8 images",
    ),
    ("float32, shape: [1, 3, 8, 8]", "uint8, shape: [1, 3, 8, 8]", 18, "can't be used for uint8"),
    ("mean: [0, 0, 0]", "mean: [0, 0]", 18, "preprocess.normalize.mean: RGB takes 3 numbers"),
    ("std: [1, 1, 1]", "std: [1]", 18, "preprocess.normalize.std: RGB takes 3 numbers"),
    (
        "  normalize: {divisor: 255, mean: [0, 0, 0], std: [1, 1, 1]}\n",
        "",
        6,
        "inputs[0].range: preprocess makes values from 0 to 255",
    ),
    ("std: [1, 1, 1]", "std: [1, 2, 0.5]", 6, "inputs[0].range: preprocess makes values from 0"),
    ("mean: [0, 0, 0]", "mean: [0.5, 0, 0]", 6, "inputs[0].range: preprocess makes values from -"),
    ("divisor: 255", "divisor: 128", 6, "inputs[0].range: preprocess makes values from 0 to 1.99"),
    ("output: scores", "output: score", 21, "postprocess.output: no output is called 'score'"),
    ("float32, shape: [1, 4]}\n  - {name: mask", "float32, shape: [2, 4]}\n  - {name: mask", 21,
     "postprocess.output: scores have the shape"),
    ("float32, shape: [1, 4]}\n  - {name: mask", "float32, shape: [1, 4, 1]}\n  - {name: mask", 21,
     "postprocess.output: scores have the shape"),
    ("float32, shape: [1, 4]}\n  - {name: mask", "float32, shape: []}\n  - {name: mask", 21,
     "postprocess.output: scores have the shape"),
    ("  tensors: {bias: golden/bias.npy}\n", "", 24, "golden: has nothing for the input 'bias'"),
    ("  image: golden/a.png\n", "", 24, "golden: has nothing for the input 'image'"),
    ("tensors: {bias:", "tensors: {image: b.npy, bias:", 26, "golden.tensors: the image feeds"),
    ("tensors: {bias:", "tensors: {x: b.npy, bias:", 26, "golden.tensors: no input is called 'x'"),
    ("  top: {index: 1, score: 0.5, tolerance: 0.1}\n", "", 24, "golden: needs an answer"),
    (
        "  top:",
        "  outputs: [{name: x, file: x.npy, tolerance: 0}]\n  top:",
        27,
        "golden.outputs: no output is called 'x'",
    ),
    (
        "classification\n  output: scores\n  activation: softmax\n  labels: labels.json\n",
        "raw\n",
        24,
        "golden.top: only a classification has a best class",
    ),
    (
        "task: image-classification",
        f"task: t\npipeline_digest: sha256:{'0' * 64}",
        5,
        "pipeline_digest: the pipeline's digest is sha256:",
    ),
]  # fmt: skip

NO_PREPROCESS = """\
schema: edge-agent/model/v1
name: a
version: 1.0.0
task: t
inputs:
  - {name: x, dtype: float32, shape: [1]}
outputs:
  - {name: y, dtype: float32, shape: [1]}
engines:
  - {engine: onnx, file: a.onnx}
postprocess: {kind: raw}
"""
MORE_RULES = [
    ("onnx, ", "onnx, layout: NHWC, ", 10, "engines[0].layout: no input or output states its own"),
    (
        "postprocess",
        "golden:\n  image: a.png\n  outputs: [{name: y, file: y.npy, tolerance: 0}]\npostprocess",
        12,
        "golden.image: this model has no preprocess",
    ),
]
FLOAT16 = BASE.replace("dtype: float32, shape: [1, 3", "dtype: float16, shape: [1, 3").replace(
    ", range: [0, 1]", ""
)


def broken(base: str, old: str, new: str) -> bytes:
    assert base.count(old) == 1, old
    return base.replace(old, new).encode()


def refusal(data: bytes) -> DescriptionError:
    with pytest.raises(DescriptionError) as caught:
        model_yaml.parse(data)
    assert str(caught.value).isprintable()
    return caught.value


@pytest.mark.parametrize("base", [BASE, NO_PREPROCESS, FLOAT16])
def test_the_bases_are_right(base: str) -> None:
    assert model_yaml.parse(base.encode()).name in ("acme/net", "a")


@pytest.mark.parametrize(("old", "new", "line", "words"), STRUCTURE)
def test_structure(old: str, new: str, line: int, words: str) -> None:
    error = refusal(broken(BASE, old, new))
    assert words in str(error)
    assert error.line == line


@pytest.mark.parametrize(("old", "new", "line", "words"), RULES)
def test_rules(old: str, new: str, line: int, words: str) -> None:
    error = refusal(broken(BASE, old, new))
    assert words in str(error)
    assert error.line == line
    assert str(error).startswith(f"model.yaml:{line}: ")


@pytest.mark.parametrize(("old", "new", "line", "words"), MORE_RULES)
def test_rules_of_models_without_an_image(old: str, new: str, line: int, words: str) -> None:
    error = refusal(broken(NO_PREPROCESS, old, new))
    assert (error.line, words in str(error)) == (line, True), str(error)


def test_an_image_makes_no_whole_numbers_but_bytes() -> None:
    plain = re.sub(r"  normalize: .*\n", "", BASE).replace("[0, 1]", "[0, 255]")
    for dtype in ("uint8", "float32", "float16"):
        model_yaml.parse(plain.replace("float32, shape: [1, 3", f"{dtype}, shape: [1, 3").encode())
    wide = plain.replace("float32, shape: [1, 3", "int32, shape: [1, 3")
    error = refusal(wide.encode())
    assert (error.line, error.message) == (
        6, "inputs[0].dtype: an image makes uint8, float32 or float16",
    )  # fmt: skip


def test_preprocess_never_makes_infinities() -> None:
    error = refusal(broken(FLOAT16, "std: [1, 1, 1]", "std: [1, 1, 1e-5]"))
    assert (error.line, "makes numbers beyond float16" in str(error)) == (18, True)


@pytest.mark.parametrize(
    "version", ["0.0.0", "10.20.30", "1.0.0-rc.1", "1.0.0-0a", "1.0.0+b.01", "1.2.3-a-b.c+d"]
)
def test_semantic_versions(version: str) -> None:
    data = BASE.replace("version: 1.0.0", f'version: "{version}"').encode()
    assert model_yaml.parse(data).version == version


@pytest.mark.parametrize("version", ["1", "1.0", "v1.0.0", "1.0.0-01", "1.0.0-", "1.0.0+", "a.b.c"])
def test_other_versions_are_refused_with_a_hint(version: str) -> None:
    error = refusal(BASE.replace("version: 1.0.0", f'version: "{version}"').encode())
    assert "three numbers" in (error.hint or "")


HINTS: list[tuple[str, str, str | None]] = [
    ("task: image", "tasks: image", "did you mean task? known here are schema, name, version,"),
    ("dtype: uint8", "type: uint8", "did you mean dtype? known here are name, dtype, shape,"),
    ("rule: stretch", "rule: stretch, zoom: 1", "known here are rule, size, filter, fill"),
    ("index: 1", "index: 1, scores: 1", "did you mean score? known here are index, score, toler"),
    ("kind: classification", "kind: raw", "known here are kind"),
    ("labels: labels.json", "label: l", "did you mean labels? known here are kind, output, activa"),
    ("engine: onnx", "engine: onx", "did you mean onnx?"),
    ("engine: onnx", "engine: torch", None),
    ("kind: classification", "kind: classify", "did you mean classification?"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "hint"), HINTS)
def test_what_was_meant(old: str, new: str, hint: str | None) -> None:
    found = refusal(broken(BASE, old, new)).hint
    assert (found or "").startswith(hint or "") and (found is None) == (hint is None), found


def test_a_huge_key_takes_no_time() -> None:
    """difflib takes the square of what it compares."""
    error = refusal(broken(BASE, "task: image", f"{'tas' * 10_000}: image"))
    assert error.line == 4


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("It is a new wording - at `$.outputs[1].dtype`", "outputs[1].dtype: It is a new", 10),
        ("It is a new wording - at `$.outputs[9].x[3]`", "outputs[9].x[3]: It is a new", 8),
        ("It is a new wording", "It is a new wording", 1),
        ("Expected `str` matching regex 'x+' - at `$.name`", "name: Expected `str` matching", 2),
        ("Invalid enum value 'x' - at `$.name`", "name: Invalid enum value 'x'", 2),
        ("Invalid enum value 'x' - at `$.y.z`", "y.z: Invalid enum value 'x'", 1),
        ("Object contains unknown field `a` - at `$.y[3]`", "y[3].a: unknown key", 1),
        ("Object contains unknown field `a` - at `$.golden[0]`", "golden[0].a: unknown key", 24),
    ],
)
def test_a_wording_that_is_not_known(text: str, message: str, line: int) -> None:
    value, lines = yaml_subset.load(BASE.encode())
    error, _ = model_yaml.located(text, value, lines)
    assert (error.message.startswith(message), error.line) == (True, line), error.message


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("task: i", "a: i", "Object contains unknown field `a`"),
        ("uint8", "u8", "Invalid enum value 'u8' - at `$.outputs[1].dtype`"),
        ("name: acme/net", "name: A", "Expected `str` matching regex {BundleName!r} - at `$.name`"),
        ("classification\n ", "x\n ", "Invalid value 'x' - at `$.postprocess.kind`"),
        ("index: 1", "x: 1", "Object contains unknown field `x` - at `$.golden.top`"),
        ("bias: golden", "'': golden",
         "Expected `str` of length >= 1 - at `key` in `$.golden.tensors`"),
        ("golden/bias.npy", "''", "Expected `str` of length >= 1 - at `$.golden.tensors[...]`"),
    ],
)  # fmt: skip
def test_the_texts_of_msgspec_that_are_read(old: str, new: str, text: str) -> None:
    value, _ = yaml_subset.load(broken(BASE, old, new))
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, description.ModelDescription)
    assert str(caught.value) == text.replace("{BundleName!r}", repr(description._BUNDLE_NAME))


def test_every_pattern_of_the_format_has_words() -> None:
    patterns = set(re.findall(r'"pattern": "(.*?)"[,}]', json.dumps(description.json_schema())))
    known = {json.dumps(pattern)[1:-1] for pattern in description.PATTERN_WORDS}
    assert patterns == known


def test_the_demo(demo: ModelDescription) -> None:
    assert demo.name == "demo/efficientnet-lite0"
    assert [part.engine for part in demo.engines] == ["onnx", "tflite"]
    assert demo.pipeline_digest == description.digest_of_pipeline(demo)
    assert demo.contract.leave_device == "never"
    assert (demo.input("images"), demo.output("logits")) == (demo.inputs[0], demo.outputs[0])
    assert (demo.input("logits"), demo.engine("tflite")) == (None, demo.engines[1])


SCHEMA = jsonschema.Draft202012Validator(description.json_schema())


def test_the_schema_is_one_and_takes_what_is_right() -> None:
    SCHEMA.check_schema(description.json_schema())
    for data in (DEMO, BASE.encode(), NO_PREPROCESS.encode()):
        SCHEMA.validate(yaml_subset.load(data)[0])
    for document in (models.COLOUR, models.PAIR, models.ROWS):
        SCHEMA.validate(document)


@pytest.mark.parametrize(("old", "new", "line", "words"), STRUCTURE)
def test_the_schema_refuses_what_parse_refuses(old: str, new: str, line: int, words: str) -> None:
    assert not SCHEMA.is_valid(yaml_subset.load(broken(BASE, old, new))[0])


def digest(document: models.Yaml) -> str:
    return description.digest_of_pipeline(model_yaml.parse(models.text(document)))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(one) for one in value] if isinstance(value, list) else value


def test_the_digest_ignores_the_order_of_keys_and_what_decides_no_answer() -> None:
    want = digest(models.COLOUR)
    assert re.fullmatch("sha256:[0-9a-f]{64}", want)
    assert digest(reordered(models.COLOUR)) == want
    for path, value in {
        "name": "acme/other-colour",
        "version": "9.9.9",
        "task": "other",
        "summary": "words",
        "license": "MIT",
        "contract": {"latency_ms": 5},
        "golden": ...,
    }.items():
        assert digest(models.changed(models.COLOUR, path, value)) == want, path


def test_defaults_written_out_change_nothing() -> None:
    spelt = models.changed(models.COLOUR, "preprocess.background", [255, 255, 255])
    spelt = models.changed(spelt, "engines.0.inputs", {})
    spelt = models.changed(spelt, "preprocess.normalize.mean", [0.0, 0.0, 0.0])
    assert digest(spelt) == digest(models.COLOUR)


def test_the_digest_changes_with_every_field_that_decides_an_answer() -> None:
    changes: dict[str, Any] = {
        "inputs.0.name": "image2", "inputs.0.dtype": "float16", "inputs.0.shape": ["N", 3, 8, 8],
        "inputs.0.layout": "NHWC", "inputs.0.range": [0, 1],
        "outputs.0.name": "scores2", "outputs.0.dtype": "float16", "outputs.0.shape": [3],
        "outputs.0.range": [0, 1],
        "engines.0.file": "b.onnx", "engines.0.layout": "NHWC",
        "engines.0.inputs": {"image": "x"}, "engines.0.outputs": {"scores": "x"},
        "engines": [{"engine": "tflite", "file": "b.tflite"}],
        "preprocess.color": "BGR", "preprocess.background": [0, 0, 0],
        "preprocess.resize": ..., "preprocess.resize.rule": "letterbox",
        "preprocess.resize.filter": "bilinear", "preprocess.resize.fill": [1, 2, 3],
        "preprocess.crop": {"rule": "center", "size": [8, 8]},
        "preprocess.normalize": ..., "preprocess.normalize.divisor": 254,
        "preprocess.normalize.mean": [0, 0, 1], "preprocess.normalize.std": [1, 1, 2],
        "postprocess.activation": "none", "postprocess.labels": "l.json", "postprocess.top_k": 3,
    }  # fmt: skip
    follow: dict[str, dict[str, Any]] = {
        "inputs.0.name": {"preprocess.input": "image2"},
        "inputs.0.layout": {"inputs.0.shape": [1, 8, 8, 3]},
        "outputs.0.name": {"postprocess.output": "scores2"},
    }
    seen = {digest(models.COLOUR): "nothing"}
    for path, value in changes.items():
        document = models.changed(models.COLOUR, path, value)
        for other, needed in follow.get(path, {}).items():
            document = models.changed(document, other, needed)
        assert seen.setdefault(digest(document), path) == path
    raw = models.changed(models.COLOUR, "golden", ...)
    assert digest(models.changed(raw, "postprocess", {"kind": "raw"})) not in seen


def test_the_digest_changes_with_the_order_of_engines() -> None:
    both = [{"engine": "onnx", "file": "a.onnx"}, {"engine": "tflite", "file": "a.tflite"}]
    one, other = (models.changed(models.ROWS, "engines", order) for order in (both, both[::-1]))
    assert digest(one) != digest(other)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_with_one_type_of_error(data: st.DataObject) -> None:
    text = bytearray(BASE.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        end = start + data.draw(st.integers(0, 6))
        text[start:end] = data.draw(st.binary(max_size=4) | st.sampled_from([b"- ", b": ", b"{}"]))
    try:
        model_yaml.parse(bytes(text))
    except DescriptionError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("inputs", "outputs", "axis"),
    [
        ([["N", 2]], [["N", 3]], "N"),
        ([["batch", 2], ["batch"]], [["batch", "boxes", 4]], "batch"),
        ([["N", 2]], [[1, 3]], None),
        ([["N", 2], [1]], [["N", 3]], None),
        ([["N", 2]], [["b", 3]], None),
        ([["N", "N"]], [["N", 3]], None),
        ([["N", 2]], [["N", "N"]], None),
        ([["rows", 2]], [["rows", 3]], None),
        ([[2, "N"]], [[2, "N"]], None),
        ([[]], [["N"]], None),
        ([["N"]], [[]], None),
    ],
)
def test_the_batch_axis(
    demo: ModelDescription, inputs: list[Any], outputs: list[Any], axis: str | None
) -> None:
    def specs(shapes: list[Any]) -> tuple[description.TensorSpec, ...]:
        return tuple(
            description.TensorSpec(name=f"t{place}", dtype="float32", shape=tuple(shape))
            for place, shape in enumerate(shapes)
        )

    described = msgspec.structs.replace(demo, inputs=specs(inputs), outputs=specs(outputs))
    assert description.batch_axis(described) == axis
