"""Rules of model.yaml that span several values. Pure: a description in, the first problem out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from edge_agent.description import (
    MAX_TENSOR_BYTES,
    Classification,
    ModelDescription,
    Preprocess,
    TensorSpec,
    digest_of_pipeline,
)

CHANNELS: Final = {"RGB": 3, "BGR": 3, "GRAY": 1}
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16,
                "float16": 16, "float32": 32, "float64": 64, "bool": 8}  # fmt: skip
# Source: IEEE 754-2019, table 3.5: the largest finite numbers.
_LARGEST: Final = {"float16": 65504.0, "float32": (2 - 2**-23) * 2.0**127}


class Problem(NamedTuple):
    """One broken rule.

    Attributes:
        path: Where, as ``$.inputs[0].shape``.
        message: What is wrong.
    """

    path: str
    message: str

    @property
    def place(self) -> str:
        """The path as people write it."""
        return self.path.removeprefix("$.")


def first_problem(description: ModelDescription) -> Problem | None:
    """Returns the first rule that the description breaks, or None."""
    return next(problems(description), None)


def problems(description: ModelDescription) -> Iterator[Problem]:
    """Yields every rule that the description breaks."""
    for rule in _RULES:
        yield from rule(description)


def _names_are_unique(d: ModelDescription) -> Iterator[Problem]:
    for field, names in (
        ("inputs", [spec.name for spec in d.inputs]),
        ("outputs", [spec.name for spec in d.outputs]),
        ("engines", [part.engine for part in d.engines]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Problem(f"$.{field}[{index}]", f"{name!r} is described twice")


def _ranges_are_ordered(d: ModelDescription) -> Iterator[Problem]:
    for field, specs in (("inputs", d.inputs), ("outputs", d.outputs)):
        for index, spec in enumerate(specs):
            if spec.range and not spec.range[0] < spec.range[1]:
                yield Problem(
                    f"$.{field}[{index}].range", "the first number must be below the second"
                )
            elif spec.range and not _lies_in(spec.range, spec.dtype):
                yield Problem(f"$.{field}[{index}].range", f"goes beyond {spec.dtype}")


def _lies_in(values: tuple[float, float], dtype: str) -> bool:
    low, high = -math.inf, math.inf
    if dtype in _LARGEST:
        low, high = -_LARGEST[dtype], _LARGEST[dtype]
    elif dtype == "bool":
        low, high = 0, 1
    elif "int" in dtype:
        low = 0 if dtype[0] == "u" else -(2 ** (_BITS[dtype] - 1))
        high = low + 2 ** _BITS[dtype] - 1
    return low <= values[0] and values[1] <= high


def _tensors_are_bounded(d: ModelDescription) -> Iterator[Problem]:
    for field, specs in (("inputs", d.inputs), ("outputs", d.outputs)):
        for index, spec in enumerate(specs):
            fixed = math.prod(axis for axis in spec.shape if isinstance(axis, int))
            if fixed * _BITS[spec.dtype] // 8 > MAX_TENSOR_BYTES:
                yield Problem(
                    f"$.{field}[{index}].shape",
                    f"makes a tensor of more than {MAX_TENSOR_BYTES >> 20} MiB",
                )


def _layouts_fit(d: ModelDescription) -> Iterator[Problem]:
    for field, specs in (("inputs", d.inputs), ("outputs", d.outputs)):
        for index, spec in enumerate(specs):
            if spec.layout and len(spec.shape) != 4:
                yield Problem(
                    f"$.{field}[{index}].layout",
                    f"{spec.layout} needs 4 axes, the shape has {len(spec.shape)}",
                )


def _engines_fit(d: ModelDescription) -> Iterator[Problem]:
    inputs = {spec.name for spec in d.inputs}
    outputs = {spec.name for spec in d.outputs}
    for index, part in enumerate(d.engines):
        place = f"$.engines[{index}]"
        if not part.file.endswith("." + part.engine):
            yield Problem(f"{place}.file", f"the {part.engine} engine reads .{part.engine} files")
        yield from _unknown(f"{place}.inputs", part.inputs, inputs, "input")
        yield from _unknown(f"{place}.outputs", part.outputs, outputs, "output")
        yield from _same_native(f"{place}.inputs", part.inputs, inputs, "inputs")
        yield from _same_native(f"{place}.outputs", part.outputs, outputs, "outputs")
        if part.layout and not any(spec.layout for spec in (*d.inputs, *d.outputs)):
            yield Problem(f"{place}.layout", "no input or output states its own layout")


def _unknown(path: str, names: Iterable[str], known: set[str], what: str) -> Iterator[Problem]:
    for name in names:
        if name not in known:
            yield Problem(path, f"no {what} is called {name!r}")


def _same_native(
    path: str, names: Mapping[str, str], known: set[str], what: str
) -> Iterator[Problem]:
    native = [names.get(name, name) for name in known]
    for name in sorted(native):
        if native.count(name) > 1:
            yield Problem(path, f"two {what} are called {name!r} in the file")


def _preprocess_fits(d: ModelDescription) -> Iterator[Problem]:
    if d.preprocess is None:
        return
    spec = d.input(d.preprocess.input)
    if spec is None:
        yield Problem("$.preprocess.input", f"no input is called {d.preprocess.input!r}")
        return
    if spec.layout and len(spec.shape) != 4:
        return  # `_layouts_fit` has said it
    place = f"$.inputs[{d.inputs.index(spec)}]"
    yield from _image_tensor(spec, place, d.preprocess)
    yield from _geometry(d.preprocess, spec)
    yield from _arithmetic(d.preprocess, spec, place)


def _image_tensor(spec: TensorSpec, place: str, pre: Preprocess) -> Iterator[Problem]:
    channels = CHANNELS[pre.color]
    if spec.layout is None:
        yield Problem(
            place, "an image feeds this input, so it must say layout: NCHW or layout: NHWC"
        )
    elif spec.shape[1 if spec.layout == "NCHW" else 3] != channels:
        yield Problem(
            f"{place}.shape", f"{spec.layout} and {pre.color} need {channels} in the channel axis"
        )
    elif not _is_one(spec.shape[0]):
        yield Problem(f"{place}.shape", "the batch axis must be 1 or a name")


def image_size(spec: TensorSpec) -> tuple[int | str, int | str]:
    """Returns (height, width) of an image tensor with a layout."""
    first = 2 if spec.layout == "NCHW" else 1
    return spec.shape[first], spec.shape[first + 1]


def _geometry(pre: Preprocess, spec: TensorSpec) -> Iterator[Problem]:
    if pre.jpeg_scaled_decoding and pre.resize is None:
        yield Problem(
            "$.preprocess.jpeg_scaled_decoding", "needs a resize, which says how small is enough"
        )
    if pre.resize and pre.resize.rule == "shortest-side":
        if pre.resize.size[0] != pre.resize.size[1]:
            yield Problem("$.preprocess.resize.size", "shortest-side takes the same number twice")
        if pre.crop is None:
            yield Problem("$.preprocess", "shortest-side leaves the long side open: add a crop")
    if (
        pre.resize
        and pre.crop
        and any(crop > side for crop, side in zip(pre.crop.size, pre.resize.size, strict=True))
    ):
        yield Problem("$.preprocess.crop.size", "is larger than the resized image")
    made = pre.crop.size if pre.crop else pre.resize.size if pre.resize else None
    wanted = image_size(spec) if spec.layout else None
    if (
        made
        and wanted
        and any(
            isinstance(want, int) and want != side for want, side in zip(wanted, made, strict=True)
        )
    ):
        yield Problem(
            "$.preprocess",
            f"makes {made[0]}x{made[1]} images, the input {spec.name!r} wants "
            f"{wanted[0]}x{wanted[1]}",
        )


def _arithmetic(pre: Preprocess, spec: TensorSpec, place: str) -> Iterator[Problem]:
    norm = pre.normalize
    if norm is None:
        if spec.dtype not in ("uint8", "float32", "float16"):
            yield Problem(f"{place}.dtype", "an image makes uint8, float32 or float16")
        yield from _range_is_reached((0.0, 255.0), spec, place)
        return
    if spec.dtype not in ("float32", "float16"):
        yield Problem("$.preprocess.normalize", f"can't be used for {spec.dtype}")
    channels = CHANNELS[pre.color]
    for field, values in (("mean", norm.mean), ("std", norm.std)):
        if len(values) != channels:
            yield Problem(
                f"$.preprocess.normalize.{field}", f"{pre.color} takes {channels} numbers"
            )
            return
    pairs = list(zip(norm.mean, norm.std, strict=True))
    low = min((0 - mean) / std for mean, std in pairs)
    high = max((255 / norm.divisor - mean) / std for mean, std in pairs)
    if not _lies_in((low, high), spec.dtype):
        yield Problem("$.preprocess.normalize", f"makes numbers beyond {spec.dtype}")
    yield from _range_is_reached((low, high), spec, place)


def _range_is_reached(made: tuple[float, float], spec: TensorSpec, place: str) -> Iterator[Problem]:
    low, high = made
    slack = 1e-3 * (high - low)
    if spec.range and (abs(low - spec.range[0]) > slack or abs(high - spec.range[1]) > slack):
        yield Problem(f"{place}.range", f"preprocess makes values from {low:.6g} to {high:.6g}")


def _postprocess_fits(d: ModelDescription) -> Iterator[Problem]:
    post = d.postprocess
    if not isinstance(post, Classification):
        return
    spec = d.output(post.output)
    if spec is None:
        yield Problem("$.postprocess.output", f"no output is called {post.output!r}")
    elif len(spec.shape) not in (1, 2) or (len(spec.shape) == 2 and not _is_one(spec.shape[0])):
        yield Problem("$.postprocess.output", "scores have the shape [classes] or [1, classes]")


def _is_one(axis: int | str) -> bool:
    return axis == 1 or isinstance(axis, str)


def _golden_fits(d: ModelDescription) -> Iterator[Problem]:
    golden = d.golden
    if golden is None:
        return
    fed = set(golden.tensors) | ({d.preprocess.input} if golden.image and d.preprocess else set())
    if golden.image and d.preprocess is None:
        yield Problem("$.golden.image", "this model has no preprocess, so it takes no image")
    if golden.image and d.preprocess and d.preprocess.input in golden.tensors:
        yield Problem("$.golden.tensors", f"the image feeds {d.preprocess.input!r} already")
    yield from _unknown("$.golden.tensors", golden.tensors, {s.name for s in d.inputs}, "input")
    missing = [spec.name for spec in d.inputs if spec.name not in fed]
    if missing:
        yield Problem("$.golden", f"has nothing for the input {missing[0]!r}")
    names = [output.name for output in golden.outputs]
    yield from _unknown("$.golden.outputs", names, {s.name for s in d.outputs}, "output")
    if golden.top is None and not golden.outputs:
        yield Problem("$.golden", "needs an answer: top or outputs")
    if golden.top and not isinstance(d.postprocess, Classification):
        yield Problem("$.golden.top", "only a classification has a best class")


def _pipeline_digest_holds(d: ModelDescription) -> Iterator[Problem]:
    if d.pipeline_digest and d.pipeline_digest != digest_of_pipeline(d):
        yield Problem("$.pipeline_digest", f"the pipeline's digest is {digest_of_pipeline(d)}")


_RULES: Final[tuple[Callable[[ModelDescription], Iterator[Problem]], ...]] = (
    _names_are_unique,
    _ranges_are_ordered,
    _tensors_are_bounded,
    _layouts_fit,
    _engines_fit,
    _preprocess_fits,
    _postprocess_fits,
    _golden_fits,
    _pipeline_digest_holds,
)
