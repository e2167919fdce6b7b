"""What is refused, and put right, before a model is quantised."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_agent.authoring.quantising import float_model
from edge_agent.backends.base import ModelFile
from edge_agent.errors import ModelFileError

from .float_models import cnn, file, tokens


def quantised(kind: str) -> Any:
    model = cnn()
    model.graph.node.append(helper.make_node(kind, ["scores"], ["more"]))
    return model


def half() -> Any:
    model = cnn()
    old = model.graph.initializer[0]
    values = numpy_helper.to_array(old).astype(np.float16)
    old.CopyFrom(numpy_helper.from_array(values, old.name))
    return model


def no_weights() -> Any:
    model = cnn()
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("GlobalAveragePool", ["image"], ["scores"]))
    return model


def empty() -> Any:
    model = cnn()
    del model.graph.node[:]
    return model


def unconvertible() -> Any:
    model = cnn(opset=9)
    model.graph.node.append(helper.make_node("NoSuchOperator", ["scores"], ["more"]))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantised("QuantizeLinear"), "is quantised already"),
        (lambda: quantised("DynamicQuantizeLinear"), "is quantised already"),
        (lambda: quantised("QLinearConv"), "is quantised already"),
        (lambda: quantised("MatMulNBits"), "is quantised already"),
        (half, "has 16-bit weights"),
        (no_weights, "nothing to quantise.*GlobalAveragePool"),
        (empty, "its graph is empty"),
        (unconvertible, "has opset 9 and can't be converted to 13"),
    ],
)
def test_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        float_model.load(file(make()), "net.onnx")
    assert re.search(message, str(caught.value))
    assert caught.value.path == "net.onnx"


@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"GIF89a"])
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(ModelFileError, match=r"is no ONNX file|has no graph"):
        float_model.load(ModelFile(data), "net.onnx")


def test_two_gibibytes_are_refused_before_they_are_copied() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    model = ModelFile(cnn().SerializeToString(), {"weights.bin": Huge()})
    with pytest.raises(ModelFileError, match=r"has 2\.0 GiB of weights"):
        float_model.load(model, "net.onnx")


def test_external_data_is_taken_in() -> None:
    model = cnn()
    tensor = next(one for one in model.graph.initializer if one.name == "head")
    values = numpy_helper.to_array(tensor)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": "4", "length": str(values.nbytes)}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    external = {"w.bin": b"1234" + values.tobytes() + b"more"}
    loaded = float_model.load(ModelFile(model.SerializeToString(), external), "net.onnx")
    found = next(one for one in loaded.graph.initializer if one.name == "head")
    assert np.array_equal(numpy_helper.to_array(found), values)
    with pytest.raises(ModelFileError, match="'head' is not all there"):
        float_model.load(ModelFile(model.SerializeToString(), {"w.bin": b"12345678"}), "net.onnx")


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_old_operators_are_converted(opset: int) -> None:
    loaded = float_model.load(file(cnn(opset=opset)), "net.onnx")
    assert [one.version for one in loaded.opset_import if not one.domain] == [13]


def test_weights_are_no_longer_inputs() -> None:
    loaded = float_model.load(file(cnn(ir_version=3, opset=9)), "net.onnx")
    assert [one.name for one in loaded.graph.input] == ["image"]


def test_every_node_has_a_name_of_its_own() -> None:
    model = cnn(named=False)
    model.graph.node[2].name = model.graph.node[4].name = "Conv_0"
    names = [node.name for node in float_model.load(file(model), "net.onnx").graph.node]
    assert names == [
        "Conv_0_", "BatchNormalization_1", "Conv_0", "Conv_3", "GlobalAveragePool_4",
        "Flatten_5", "Gemm_6",
    ]  # fmt: skip


def test_a_model_of_tokens_is_taken() -> None:
    assert float_model.operators(float_model.load(file(tokens()), "net.onnx"))["MatMul"] == 2
