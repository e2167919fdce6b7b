"""ONNX Runtime's quantiser as it is put together here, on small models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from edge_agent.authoring.quantising import float_model, node_choice, qdq, quantiser
from edge_agent.authoring.quantising.calibration import Calibration, Method, collect
from edge_agent.authoring.quantising.quantiser import Scheme
from edge_agent.errors import BadInputError, ConfigError, ModelFileError

from .float_models import SIDE, cnn, file, tokens

Inputs = dict[str, Any]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy")


def images(count: int = 6) -> list[Inputs]:
    random = np.random.default_rng(7)
    shape = (1, 3, SIDE, SIDE)
    return [{"image": random.normal(0, 1, shape).astype(np.float32)} for _ in range(count)]


def prepared(model: Any) -> Any:
    return quantiser.prepare(float_model.load(file(model), "net.onnx"), "net.onnx")


def ranges(ready: Any, samples: Sequence[Inputs], method: Method = "minmax") -> quantiser.Ranges:
    by_name = {Path(f"{index}.npy"): one for index, one in enumerate(samples)}
    return collect(ready, Calibration(method), list(by_name), by_name.__getitem__)


def made(
    model: Any,
    samples: Sequence[Inputs],
    scheme: Scheme | None = None,
    method: Method = "minmax",
) -> bytes:
    ready = prepared(model)
    found = ranges(ready, samples, method)
    return quantiser.quantise(ready, scheme or Scheme(), found, "net.onnx")


def run(data: bytes, inputs: Inputs) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(data, options).run(None, inputs)[0]


def drift(model: Any, data: bytes, samples: Sequence[Inputs]) -> float:
    right = np.stack([run(model.SerializeToString(), one) for one in samples])
    have = np.stack([run(data, one) for one in samples])
    return float(np.linalg.norm(have - right) / np.linalg.norm(right))


@pytest.mark.parametrize("types", ["u8s8", "s8s8"])
@pytest.mark.parametrize("method", METHODS)
def test_answers_stay_close(types: str, method: Method) -> None:
    samples = images()
    data = made(cnn(), samples, Scheme(types), method)
    assert drift(cnn(), data, samples) < 0.1
    assert qdq.count_weights(onnx.load_model_from_string(data)) == qdq.Weights(3, 0)
    assert len(data) < 10_000


@pytest.mark.parametrize(
    "change",
    [{"batch": "N"}, {"opset": 9, "ir_version": 3}, {"opset": 11}, {"opset": 20}, {"named": False}],
)
def test_models_of_every_age_and_shape(change: dict[str, Any]) -> None:
    samples = images()
    data = made(cnn(**change), samples)
    assert drift(cnn(**change), data, samples) < 0.1
    assert [one.domain for one in onnx.load_model_from_string(data).opset_import] == [""]
    if "batch" in change:
        both = {"image": np.concatenate([samples[0]["image"], samples[1]["image"]])}
        assert run(data, both).shape == (2, 4)


def test_one_scale_a_weight_loses_small_channels() -> None:
    samples, model = images(), cnn(spread=True)
    tensor = made(model, samples, Scheme(per_channel=False))
    channel = made(model, samples)
    assert drift(model, channel, samples) < 0.15 < 0.3 < drift(model, tensor, samples)
    assert qdq.count_weights(onnx.load_model_from_string(tensor)) == qdq.Weights(0, 3)


def test_depthwise_and_gemm_weights_have_a_scale_for_each_output_channel() -> None:
    proto = onnx.load_model_from_string(made(cnn(), images()))
    weights = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
    shapes = {
        name.removesuffix("_scale"): value.shape
        for name, value in weights.items()
        if name.removesuffix("_scale") in ("deep", "head")
    }
    assert shapes == {"deep": (8,), "head": (4,)}


def test_seven_bits() -> None:
    proto = onnx.load_model_from_string(made(cnn(), images(), Scheme(reduce_range=True)))
    weights = [
        numpy_helper.to_array(one)
        for one in proto.graph.initializer
        if one.data_type == onnx.TensorProto.INT8 and len(one.dims) > 1
    ]
    assert len(weights) == 3
    assert all(abs(one.astype(int)).max() <= 64 for one in weights)


def test_operators_are_counted_and_excluded_ones_stay_float() -> None:
    ready = prepared(cnn())
    total = float_model.operators(ready)
    found = ranges(ready, images())
    assert node_choice.excluded(ready, ("deep",)) == ("deep",)
    data = quantiser.quantise(ready, Scheme(exclude=("deep",)), found, "net.onnx")
    counted = {
        one.type: (one.quantised, one.total)
        for one in qdq.count_operators(total, onnx.load_model_from_string(data))
    }
    assert counted["Conv"] == (1, 2)
    assert counted["Gemm"] == (1, 1)
    assert "BatchNormalization" not in counted  # fused


def test_an_unknown_node_cannot_be_excluded() -> None:
    with pytest.raises(ConfigError, match="no node 'Head2'") as caught:
        node_choice.excluded(prepared(cnn()), ("head", "Head2"))
    assert caught.value.hint
    with pytest.raises(ConfigError) as caught:
        node_choice.excluded(prepared(cnn()), ("HEA",))
    assert caught.value.hint == "it has head"


def test_a_tensor_stands_for_what_makes_it() -> None:
    """Where an activation is merged into a convolution, its tensor stands for both."""
    assert node_choice.excluded(prepared(cnn()), ("c", "d", "relu")) == ("relu", "stem", "deep")


def test_what_cannot_be_prepared_is_not_to_be_excluded() -> None:
    """A node is excluded only later, when the quantiser chooses."""
    model = cnn()
    model.graph.node.append(onnx.helper.make_node("Other", ["scores"], ["more"], domain="acme"))
    with pytest.raises(ModelFileError, match="quantiser fails on it") as caught:
        prepared(model)
    assert caught.value.hint == "export it again: with another opset, or fixed shapes"


def test_two_inputs_of_open_length() -> None:
    random = np.random.default_rng(1)
    samples = [
        {
            "input_ids": random.integers(0, 32, (1, words)),
            "attention_mask": np.ones((1, words), np.float32),
        }
        for words in (3, 5, 9, 4)
    ]
    data = made(tokens(), samples)
    assert drift(tokens(), data, samples) < 0.1
    counted = qdq.count_weights(onnx.load_model_from_string(data))
    assert counted.per_channel >= 2


@pytest.mark.parametrize("method", METHODS)
def test_ranges_are_those_of_the_values(method: Method) -> None:
    """In whatever order they come, also where the first sample is a million times darker."""
    samples = images()
    samples[0] = {"image": samples[0]["image"] * np.float32(1e-6)}
    everything = np.concatenate([one["image"] for one in samples])
    ready = prepared(cnn())
    for order in (samples, samples[::-1]):
        found = ranges(ready, order, method)["image"]
        low, high = (float(np.squeeze(one)) for one in (found.lowest, found.highest))
        if method == "minmax":
            assert (low, high) == (everything.min(), everything.max())
        else:
            assert everything.min() <= low < 0 < high <= everything.max()


def test_a_histogram_does_not_grow(tmp_path: Path) -> None:
    """Its bins would be a million times as many, where the first sample decides their width."""
    dark, bright = images(2)
    dark = {"image": dark["image"] * np.float32(1e-6)}
    ready = prepared(cnn())
    bounds = ranges(ready, [dark, bright])
    calibrater = quantiser.Calibrater(ready, "percentile", 99.9, bounds, tmp_path)
    for one in (dark, bright):
        calibrater.collect(one, "sample")
    histograms = calibrater._native.collector.histogram_dict
    assert all(one[0].size <= 2050 for one in histograms.values())


def test_samples_are_read_one_after_the_other() -> None:
    """And their progress is told, with both passes of a histogram."""
    given, told = [], []

    def read(path: Path) -> Inputs:
        given.append(path.name)
        return samples[int(path.name)]

    samples = images(3)
    files = [Path(str(index)) for index in range(3)]
    collect(
        prepared(cnn()), Calibration("percentile"), files, read, lambda *step: told.append(step)
    )
    assert given == ["0", "1", "2"] * 2
    assert told == [(step, 6) for step in range(1, 7)]


def test_what_the_model_cannot_run_is_refused_by_name() -> None:
    wrong = {"image": np.zeros((1, 3, SIDE, SIDE + 1), np.float32)}
    with pytest.raises(BadInputError, match=r"1\.npy: the model can't be run on it"):
        ranges(prepared(cnn()), [*images(1), wrong])


@pytest.mark.parametrize("method", METHODS)
def test_infinities_have_no_range(method: Method) -> None:
    """A node that stays float may have them."""
    samples = [{"image": np.full((1, 3, SIDE, SIDE), np.inf, np.float32)}]
    with pytest.raises(ModelFileError, match="infinite or NaN") as caught:
        made(cnn(), samples, None, method)
    assert caught.value.hint
    names = tuple(caught.value.hint.split(" --exclude ")[1:])
    assert names[0] == "stem"
    if method == "minmax":
        ready = prepared(cnn())
        quantiser.quantise(ready, Scheme(exclude=names), ranges(ready, samples), "net.onnx")


def test_nothing_is_printed_or_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for method in METHODS:
        made(cnn(opset=9), images(2), None, method)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert logging.root.manager.disable == 0


@pytest.mark.parametrize("model", [cnn, tokens])
def test_no_trace_of_where_and_when(
    model: Callable[[], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    samples = images() if model is cnn else [
        {"input_ids": np.array([[1, 2]]), "attention_mask": np.ones((1, 2), np.float32)}
    ]  # fmt: skip
    given = model()
    entry = given.metadata_props.add()
    entry.key, entry.value = "author", "Acme"
    given.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    data = made(given, samples)
    assert capfd.readouterr() == ("", "")
    assert b"/tmp" not in data
    assert bytes(tmp_path.parent.name, "ascii") not in data
    proto = onnx.load_model_from_string(data)
    onnx.checker.check_model(proto, full_check=True)  # its nodes in the order in which they run
    assert [(one.key, one.value) for one in proto.metadata_props] == [("author", "Acme")]
    names = [one.name for one in proto.graph.initializer]
    assert names == sorted(names)
