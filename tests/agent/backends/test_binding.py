"""How tensors of model.yaml find those of an engine's file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_agent.backends.binding import (
    Bound,
    NativeTensor,
    bind,
    check_outputs,
    engine_layout,
    permutation,
    turned,
)
from edge_agent.description import TensorSpec
from edge_agent.errors import ModelFileError


def spec(name: str, *shape: int | str, **more: Any) -> TensorSpec:
    return TensorSpec(name=name, dtype="float32", shape=shape, **more)


def native(name: str, *shape: int | None) -> NativeTensor:
    return NativeTensor(name, "float32", shape)


IMAGE = spec("image", 1, 3, 8, 9, layout="NCHW")


def test_by_name_or_by_the_name_that_model_yaml_gives() -> None:
    natives = [native("y", 2), native("x", 1), native("b", 3)]
    bound = bind([spec("a", 1), spec("b", 3), spec("y", 2)], {"a": "x"}, None, natives, "input")
    assert [(one.spec.name, one.native.name) for one in bound] == [
        ("a", "x"),
        ("b", "b"),
        ("y", "y"),
    ]


def test_names_may_be_swapped() -> None:
    natives = [native("a", 1), native("b", 2)]
    bound = bind([spec("a", 2), spec("b", 1)], {"a": "b", "b": "a"}, None, natives, "input")
    assert [one.native.name for one in bound] == ["b", "a"]


REFUSED: dict[str, tuple[list[TensorSpec], dict[str, str], Any, list[NativeTensor], str]] = {
    "missing": ([spec("a", 1)], {}, None, [native("x", 1), native("w", 1)],
                "the file has no input 'a'; it has w, x"),
    "mapped to nothing": ([spec("a", 1)], {"a": "z"}, None, [native("a", 1)], "no input 'z'"),
    "one more in the file": ([spec("a", 1)], {}, None, [native("a", 1), native("b", 1)],
                             "needs an input 'b' that model.yaml lacks"),
    "two on one": ([spec("a", 1), spec("b", 1)], {"b": "a"}, None, [native("a", 1), native("c", 1)],
                   "needs an input 'c' that model.yaml lacks"),
    "two of one name in the file": ([spec("a", 1)], {}, None, [native("a", 1), native("a", 1)],
                                    "two inputs of one name"),
    "length": ([spec("a", 1, 2)], {}, None, [native("a", 1, 3)],
               "has the shape [1, 3] in the file, model.yaml makes it [1, 2]"),
    "rank": ([spec("a", 1, 2)], {}, None, [native("a", 2)], "has the shape [2] in the file"),
    "open in another place": ([spec("a", "N", 2)], {}, None, [native("a", 1, None, None)],
                              "has the shape [1, '?', '?']"),
    "layout": ([IMAGE], {}, None, [native("image", 1, 8, 9, 3)],
               "model.yaml makes it [1, 3, 8, 9] (NCHW)"),
    "the other layout": ([IMAGE], {}, "NHWC", [native("image", 1, 3, 8, 9)],
                         "model.yaml makes it [1, 8, 9, 3] (NHWC)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    specs, names, layout, natives, words = REFUSED[case]
    with pytest.raises(ModelFileError) as caught:
        bind(specs, names, layout, natives, "input")
    assert words in caught.value.message


def test_outputs_may_stay_unused() -> None:
    natives = [native("a", 1), native("b", 1)]
    assert len(bind([spec("a", 1)], {}, None, natives, "output")) == 1


@pytest.mark.parametrize(
    ("described", "there"),
    [(("N", 2), (None, 2)), (("N", 2), (4, 2)), ((4, 2), (None, 2)), ((), ()), (("N",), (None,))],
)
def test_open_axes_fit_on_either_side(
    described: tuple[int | str, ...], there: tuple[int | None, ...]
) -> None:
    assert bind([spec("a", *described)], {}, None, [native("a", *there)], "input")


@pytest.mark.parametrize("layout", [None, "NCHW", "NHWC"])
def test_only_tensors_with_a_layout_are_turned(layout: Any) -> None:
    there = (1, 8, 9, 3) if layout == "NHWC" else (1, 3, 8, 9)
    plain = spec("plain", 1, 3, 8, 9)
    bound = bind([IMAGE, plain], {}, layout, [native("image", *there), native("plain", 1, 3, 8, 9)],
                 "input")  # fmt: skip
    assert [one.layout for one in bound] == [layout or "NCHW", None]
    assert engine_layout(plain, layout) is None


def test_turning_there_and_back() -> None:
    value = np.arange(120).reshape(2, 3, 4, 5)
    over = turned(value, "NCHW", "NHWC")
    assert over.shape == (2, 4, 5, 3)
    assert over[1, 3, 4, 2] == value[1, 2, 3, 4]
    assert over.flags.c_contiguous
    assert turned(over, "NHWC", "NCHW").tolist() == value.tolist()
    assert turned(value, "NCHW", "NCHW") is value
    assert turned(value, None, "NHWC") is value
    bound = Bound(spec("y", 2, 3, 4, 5, layout="NCHW"), native("y", 2, 4, 5, 3), "NHWC")
    assert bound.to_described(over).tolist() == value.tolist()


@pytest.mark.parametrize("pair", [("NCHW", None), (None, "NCHW"), (None, None), ("NHWC", "NHWC")])
def test_nothing_moves(pair: tuple[str | None, str | None]) -> None:
    assert permutation(*pair) is None


def output(described: TensorSpec, dtype: str = "float32", layout: Any = None) -> Bound:
    return Bound(described, NativeTensor("y", dtype, ()), layout or described.layout)


X = Bound(spec("x", "N", 3), native("x", None, 3), None)
GIVEN = {"x": np.zeros((2, 3), "f4")}
OUTPUTS: dict[str, tuple[Bound, Any, str]] = {
    "length": (output(spec("y", 4)), np.zeros(8, "f4"), "shape [8], model.yaml makes it [4]"),
    "rank": (output(IMAGE, layout="NHWC"), np.zeros((3, 8), "f4"),
             "shape [3, 8], model.yaml makes it [1, 8, 9, 3] (NHWC)"),
    "layout": (output(IMAGE, layout="NHWC"), np.zeros((1, 3, 8, 9), "f4"),
               "the shape [1, 3, 8, 9]"),
    "dtype": (output(spec("y", 4)), np.zeros(4, "f8"), "as float64, the file declares float32"),
    "no tensor": (output(spec("y", 4)), [1, 2], "as list, the file declares float32"),
    "empty": (output(spec("y", 4)), np.zeros(0, "f4"), "shape [0], model.yaml makes it [4]"),
    "named as an input's": (output(spec("y", "N")), np.zeros(3, "f4"),
                            "shape [3], model.yaml makes it ['N'], N is 2"),
    "empty as an input's": (output(spec("y", "N")), np.zeros(0, "f4"), "N is 2"),
    "named twice": (output(spec("y", "M", "M")), np.zeros((3, 4), "f4"), "M is 3"),
    "huge": (output(spec("y", "M")), np.broadcast_to(np.float32(0), (1 << 27,)),
             "536870912 bytes, the limit is 268435456"),
    "huge when made real numbers": (output(spec("y", "M"), "int8"),
                                    np.broadcast_to(np.int8(0), (1 << 27,)), "536870912 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTPUTS)
def test_outputs_that_are_not_as_described(case: str) -> None:
    one, value, words = OUTPUTS[case]
    with pytest.raises(ModelFileError) as caught:
        check_outputs([one], [value], [X], GIVEN)
    assert words in caught.value.message
    assert repr(one.spec.name) in caught.value.message


def test_outputs_of_one_axis_agree() -> None:
    both = [output(spec("y", "M")), output(spec("z", "M", 2))]
    for count in (0, 1, 5):  # a detector may find nothing
        check_outputs(both, [np.zeros(count, "f4"), np.zeros((count, 2), "f4")], [X], GIVEN)
    with pytest.raises(ModelFileError, match="'z' came out"):
        check_outputs(both, [np.zeros(5, "f4"), np.zeros((4, 2), "f4")], [X], GIVEN)
    image = output(IMAGE, layout="NHWC")
    check_outputs([image], [np.zeros((1, 8, 9, 3), "f4")], [X], GIVEN)
