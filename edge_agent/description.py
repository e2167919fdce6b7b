"""model.yaml: what a bundle is, what goes in and comes out, and what it promises.

The types here are the format: the parser (``model_yaml.py``) and the JSON Schema are both derived
from them. Rules that one value can't show alone stand in ``description_rules.py``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import NODEFAULT, Meta, Struct

SCHEMA: Final = "edge-agent/model/v1"
MAX_TENSOR_BYTES: Final = 256 * 1024 * 1024
BATCH_AXES: Final = ("batch", "batch_size", "N", "n", "b")

# `(?!\n)$` ends the string in Python and ECMAScript alike; a bare `$` lets a newline pass.
# Source: Semantic Versioning 2.0.0, "Is there a suggested regular expression".
_SEMVER = (
    r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?(?!\n)$"
)
_BUNDLE_NAME = r"^[a-z0-9]+([._-][a-z0-9]+)*(/[a-z0-9]+([._-][a-z0-9]+)*)*(?!\n)$"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$"
_TASK = r"^[a-z][a-z0-9-]*(?!\n)$"
_DIGEST = r"^sha256:[0-9a-f]{64}(?!\n)$"
# What each of them takes, for people.
PATTERN_WORDS: Final = {
    _SEMVER: "a semantic version: write three numbers, such as 1.0.0",
    _BUNDLE_NAME: (
        "a bundle name: lower-case letters, digits, '.', '_' and '-', in parts joined by '/'"
    ),
    _IDENTIFIER: "the name of an axis: letters, digits and '_', a digit not first",
    _TASK: "a task: lower-case letters, digits and '-', such as image-classification",
    _DIGEST: "a digest: sha256: and 64 hexadecimal digits in lower case",
}

DType = Literal[
    "float32", "float16", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool"
]
Layout = Literal["NCHW", "NHWC"]
LeaveDevice = Literal["never", "model-input", "original"]

BundleName = Annotated[str, Meta(pattern=_BUNDLE_NAME, max_length=128)]
Version = Annotated[str, Meta(pattern=_SEMVER, max_length=64)]
TensorName = Annotated[str, Meta(min_length=1, max_length=256)]
FilePath = Annotated[str, Meta(min_length=1, max_length=512)]
Axis = Annotated[str, Meta(pattern=_IDENTIFIER, max_length=64)]
Side = Annotated[int, Meta(ge=1, le=16384)]
Size = tuple[Side, Side]
Byte = Annotated[int, Meta(ge=0, le=255)]
Positive = Annotated[float, Meta(gt=0)]
# Far beyond what pixels need, and near enough to one that float32 never overflows.
Shift = Annotated[float, Meta(ge=-1e6, le=1e6)]
Scale = Annotated[float, Meta(ge=1e-6, le=1e6)]


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of model.yaml: immutable, and strict about unknown keys."""


class TensorSpec(_Part, frozen=True, kw_only=True):
    """One input or output tensor.

    Attributes:
        name: Its name in requests and answers.
        dtype: NumPy's name of the element type.
        shape: Axis lengths; a name stands for an axis of any length, equal wherever it recurs.
        layout: Order of the axes of an image; required where an image is fed in.
        range: Smallest and largest value (inclusive) that the model was made for.
    """

    name: TensorName
    dtype: DType
    shape: Annotated[tuple[Annotated[int, Meta(ge=1)] | Axis, ...], Meta(max_length=8)]
    layout: Layout | None = None
    range: tuple[float, float] | None = None


class EngineFile(_Part, frozen=True, kw_only=True):
    """The file that one engine runs.

    Attributes:
        engine: Which engine reads it.
        file: Path inside the bundle; ends in ``.onnx`` or ``.tflite`` as the engine does.
        layout: Order of the image axes in this file, where it is not the input's own.
        inputs: Names in this file by the names above, where they differ.
        outputs: The same for outputs.
    """

    engine: Literal["onnx", "tflite"]
    file: FilePath
    layout: Layout | None = None
    inputs: dict[TensorName, TensorName] = {}
    outputs: dict[TensorName, TensorName] = {}


class Resize(_Part, frozen=True, kw_only=True):
    """How the upright image is scaled, with Pillow's antialiased filters.

    Attributes:
        rule: ``shortest-side`` scales the short side to ``size[0]`` (= ``size[1]``) and keeps the
            aspect ratio, the long side rounded down (torchvision's Resize); ``stretch`` scales to
            exactly ``size``; ``letterbox`` fits inside ``size`` and fills the rest with ``fill``.
        size: (height, width) in pixels.
        filter: Pillow's resampling filter.
        fill: Colour of the bars of ``letterbox``, RGB.
    """

    rule: Literal["shortest-side", "stretch", "letterbox"]
    size: Size
    filter: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
    fill: tuple[Byte, Byte, Byte] = (0, 0, 0)


class Crop(_Part, frozen=True, kw_only=True):
    """What is cut out after scaling.

    Attributes:
        rule: ``center``: torchvision's CenterCrop, offsets rounded half to even.
        size: (height, width) in pixels, at most the scaled image's.
    """

    rule: Literal["center"]
    size: Size


class Normalize(_Part, frozen=True, kw_only=True):
    """``y = (x / divisor - mean) / std`` for each channel, x in 0..255, computed in float32.

    Attributes:
        divisor: One number for all channels, usually 1 or 255.
        mean: One number a channel, in the model's channel order.
        std: One number a channel, above zero.
    """

    divisor: Scale = 1.0
    mean: Annotated[tuple[Shift, ...], Meta(min_length=1, max_length=4)]
    std: Annotated[tuple[Scale, ...], Meta(min_length=1, max_length=4)]


class Preprocess(_Part, frozen=True, kw_only=True):
    """From an image file to the model's input tensor.

    Attributes:
        input: The input tensor that the image feeds.
        color: Channel order of that tensor; GRAY has one channel.
        background: RGB colour under transparent pixels.
        resize: Scaling; without it only an image of exactly the right size is taken.
        crop: Cut after scaling.
        normalize: Arithmetic; without it the tensor holds plain 0..255 values.
        jpeg_scaled_decoding: Whether a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, no
            smaller than what `resize` makes of it. That is faster, and gives other pixels.
    """

    input: TensorName
    color: Literal["RGB", "BGR", "GRAY"]
    background: tuple[Byte, Byte, Byte] = (255, 255, 255)
    resize: Resize | None = None
    crop: Crop | None = None
    normalize: Normalize | None = None
    jpeg_scaled_decoding: bool = False


class Classification(_Part, frozen=True, kw_only=True, tag_field="kind", tag="classification"):
    """Scores of one output become ranked labels.

    Attributes:
        output: The output that holds one score a class, shape [1, classes] or [classes].
        activation: What turns its values into probabilities.
        labels: A JSON array of class names inside the bundle, in the order of the scores.
        top_k: How many classes an answer holds unless the request says otherwise.
    """

    output: TensorName
    activation: Literal["softmax", "sigmoid", "none"]
    labels: FilePath
    top_k: Annotated[int, Meta(ge=1, le=1000)] = 5


class Raw(_Part, frozen=True, kw_only=True, tag_field="kind", tag="raw"):
    """The output tensors are the answer, as they are."""


class Drift(_Part, frozen=True, kw_only=True):
    """How far answers may lie from those of the FP32 reference, over a folder of sample inputs.

    The defaults admit what per-channel INT8 does to a mobile classifier, and refuse what per-tensor
    weights do to one. The measures are those of `edge_agent.drift.metrics`.

    Attributes:
        max_relative_l2: Largest ``|answer - reference| / |reference|`` over all inputs together.
        min_cosine: Smallest cosine of an answer and its reference, the mean over the inputs.
        max_error: Largest absolute difference of any element.
        min_top1_agreement: Smallest share of inputs with the reference's best class.
        min_topk_agreement: Smallest share of the reference's k best classes that are kept.
        top_k: That k.
        max_lsb: Largest difference between two engines, in steps of the output's quantisation.
    """

    max_relative_l2: Annotated[float, Meta(ge=0)] = 0.35
    min_cosine: Annotated[float, Meta(ge=-1, le=1)] = 0.95
    max_error: Annotated[float, Meta(ge=0)] | None = None
    min_top1_agreement: Annotated[float, Meta(ge=0, le=1)] = 0.75
    min_topk_agreement: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1, le=1000)] = 5
    max_lsb: Annotated[float, Meta(ge=0)] = 8.0


class Contract(_Part, frozen=True, kw_only=True):
    """What the publisher promises, and what the device must keep.

    Attributes:
        latency_ms: 95th percentile of one inference on a device that the bundle is meant for.
        deadline_ms: An answer that comes later is of no use; a call may say otherwise.
        memory_mib: Memory that one loaded session needs at most.
        min_confidence: A best score below this marks the answer as not confident.
        leave_device: What may be sent elsewhere; the stricter of bundle and device wins.
        drift: How far its answers may lie from those of the FP32 model.
    """

    latency_ms: Positive | None = None
    deadline_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | None = None
    memory_mib: Annotated[int, Meta(ge=1)] | None = None
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    leave_device: LeaveDevice = "never"
    drift: Drift = Drift()


class ExpectedTop(_Part, frozen=True, kw_only=True):
    """The right best class of a golden image.

    Attributes:
        index: Class index.
        score: Its score after the activation.
        tolerance: Largest absolute difference in score that still counts as right.
    """

    index: Annotated[int, Meta(ge=0)]
    score: float
    tolerance: Annotated[float, Meta(ge=0)]


class ExpectedOutput(_Part, frozen=True, kw_only=True):
    """The right value of one raw output.

    Attributes:
        name: The output.
        file: A ``.npy`` file inside the bundle.
        tolerance: Largest absolute difference of any element that still counts as right.
    """

    name: TensorName
    file: FilePath
    tolerance: Annotated[float, Meta(ge=0)]


class Golden(_Part, frozen=True, kw_only=True):
    """An input with its right answer: the health probe of every engine on every device.

    Attributes:
        image: An image file inside the bundle, for models that take one.
        tensors: ``.npy`` files inside the bundle by input name, for the others.
        top: The answer of a classifier.
        outputs: The answer of a model with raw outputs.
    """

    image: FilePath | None = None
    tensors: dict[TensorName, FilePath] = {}
    top: ExpectedTop | None = None
    outputs: tuple[ExpectedOutput, ...] = ()


class ModelDescription(_Part, frozen=True, kw_only=True):
    """The whole of model.yaml.

    Attributes:
        schema: Version of this format.
        name: Bundle name, which trust rules match; ``publisher/model`` by custom.
        version: Semantic version.
        task: What it does, one word of the field such as ``image-classification``.
        summary: One line for people.
        license: SPDX expression of the weights' licence.
        inputs: Input tensors.
        outputs: Output tensors.
        engines: Files that engines run, in the publisher's order of preference.
        preprocess: Image to tensor; absent where the model takes no image.
        postprocess: Outputs to answer.
        contract: Promises and limits.
        golden: Probe with its answer.
        pipeline_digest: Where given, must equal the computed one (`digest_of_pipeline`).
    """

    schema: Literal["edge-agent/model/v1"]
    name: BundleName
    version: Version
    task: Annotated[str, Meta(pattern=_TASK, max_length=64)]
    summary: Annotated[str, Meta(max_length=200)] | None = None
    license: Annotated[str, Meta(max_length=100)] | None = None
    inputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=64)]
    outputs: Annotated[tuple[TensorSpec, ...], Meta(min_length=1, max_length=64)]
    engines: Annotated[tuple[EngineFile, ...], Meta(min_length=1, max_length=8)]
    preprocess: Preprocess | None = None
    postprocess: Classification | Raw
    contract: Contract = Contract()
    golden: Golden | None = None
    pipeline_digest: Annotated[str, Meta(pattern=_DIGEST)] | None = None

    def input(self, name: str) -> TensorSpec | None:
        """Returns the input of that name."""
        return next((spec for spec in self.inputs if spec.name == name), None)

    def output(self, name: str) -> TensorSpec | None:
        """Returns the output of that name."""
        return next((spec for spec in self.outputs if spec.name == name), None)

    def engine(self, name: str) -> EngineFile | None:
        """Returns the file for that engine."""
        return next((part for part in self.engines if part.engine == name), None)


def batch_axis(description: ModelDescription) -> str | None:
    """Returns the axis along which rows of several callers can run together, if there is one.

    It is the first axis of every input and every output, has one of the names `BATCH_AXES`, and
    recurs at no other place.
    """
    specs = (*description.inputs, *description.outputs)
    first = specs[0].shape[:1]
    axis = first[0] if first else None
    if not isinstance(axis, str) or axis not in BATCH_AXES:
        return None
    is_first = all(spec.shape[:1] == first and axis not in spec.shape[1:] for spec in specs)
    return axis if is_first else None


_PIPELINE_FIELDS: Final = ("inputs", "outputs", "engines", "preprocess", "postprocess")


def digest_of_pipeline(description: ModelDescription) -> str:
    """Returns the digest of everything in model.yaml that decides an answer.

    It covers inputs, outputs, engine files' names, pre- and post-processing; the bundle's digest
    covers the files themselves. Values that are a default are left out, so that a key that a later
    version of the format adds doesn't change the digest of bundles that lack it.

    Returns:
        ``sha256:`` and the hex digest of canonical JSON (sorted keys, no white space).
    """
    from hashlib import sha256

    parts = {name: _without_defaults(getattr(description, name)) for name in _PIPELINE_FIELDS}
    return "sha256:" + sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def _without_defaults(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_defaults(item) for item in value]
    if not isinstance(value, Struct):
        return value
    names = value.__struct_fields__
    given = zip(names[::-1], value.__struct_defaults__[::-1], strict=False)
    defaults = {name: default for name, default in given if default is not NODEFAULT}
    tag = value.__struct_config__.tag
    return ({"kind": tag} if tag else {}) | {
        name: _without_defaults(getattr(value, name))
        for name in names
        if name not in defaults or getattr(value, name) != defaults[name]
    }


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of model.yaml."""
    schema = msgspec.json.schema(ModelDescription)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:edge-agent:schema:model:v1",
        "title": "edge-agent model.yaml",
    }
    return head | schema
