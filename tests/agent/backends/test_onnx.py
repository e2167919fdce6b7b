"""What only the ONNX backend does: external data from memory, many types, layouts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edge_agent import model_yaml
from edge_agent.backends import onnx
from edge_agent.backends.base import ModelFile
from edge_agent.backends.binding import NativeTensor
from edge_agent.errors import (
    EngineFailedError,
    EngineUnavailableError,
    ModelFileError,
    TensorError,
)
from tests.agent import models
from tests.agent.marks import needs_external_data

if TYPE_CHECKING:
    from tests.agent.conftest import Publisher

BACKEND = onnx.OnnxBackend()
FACTORS = np.array([1, 2, 3], "f4").tobytes()
IMAGE = np.full((1, 3, 8, 8), 5, "f4")


def load(document: models.Yaml, data: bytes, external: dict[str, bytes] | None = None) -> Any:
    described = model_yaml.parse(models.text(document))
    part = described.engines[0]
    return BACKEND.load(ModelFile(data, external or {}), described, part, 1)


@needs_external_data
def test_external_data_come_needs_external_data_though_files_lie_about(
    tmp_path: Path, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signed bytes run; a file of that name where an engine might look must not."""
    for folder in ("", "deep", "weights", "weights/deep"):
        decoy = tmp_path / "cwd" / folder / "factors.bin"
        decoy.parent.mkdir(parents=True, exist_ok=True)
        decoy.write_bytes(np.array([9, 9, 9], "f4").tobytes())
    monkeypatch.chdir(tmp_path / "cwd")
    document = models.changed(models.COLOUR, "engines.0.file", "weights/model.onnx")
    path = publisher.sign(
        document,
        model_onnx=None,
        weights__model_onnx=models.colour("deep/factors.bin"),
        weights__deep__factors_bin=FACTORS,
    )
    bundle = publisher.in_memory(path)
    part = bundle.description.engines[0]
    model = bundle.model_file(part)
    assert model.external == {"deep/factors.bin": FACTORS}
    session = BACKEND.load(model, bundle.description, part, 1)
    del model
    bundle.verified.close()
    assert session.run({"image": IMAGE})["scores"].tolist() == [[5, 10, 15]]


@needs_external_data
def test_external_data_that_are_not_handed_over_are_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factors.bin").write_bytes(FACTORS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelFileError, match="ONNX Runtime refuses the model"):
        load(models.COLOUR, models.colour("factors.bin"))
    with pytest.raises(ModelFileError, match="ONNX Runtime refuses the model"):
        load(models.COLOUR, models.colour("factors.bin"), {"other.bin": FACTORS})


@needs_external_data
@pytest.mark.parametrize("data", [b"", FACTORS[:-1], FACTORS[:4]])
def test_external_data_that_are_too_short(data: bytes) -> None:
    with pytest.raises(ModelFileError, match="ONNX Runtime refuses the model"):
        load(models.COLOUR, models.colour("factors.bin"), {"factors.bin": data})


@pytest.mark.parametrize(
    ("offset", "length"),
    [(4, 12), (-4, 12), (0, 16), (0, -1), (2**62, 12), (2**64, 12), (0, 2**63)],
)
def test_external_data_beyond_the_file(offset: int, length: int) -> None:
    from onnx import ModelProto

    model = ModelProto.FromString(models.colour("factors.bin"))
    for key, value in (("offset", offset), ("length", length)):
        entry = model.graph.initializer[0].external_data.add()
        entry.key, entry.value = key, str(value)
    with pytest.raises(ModelFileError):
        load(models.COLOUR, model.SerializeToString(), {"factors.bin": FACTORS})


TYPES = {
    "float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE,
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "uint16": TensorProto.UINT16,
    "int16": TensorProto.INT16, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}  # fmt: skip


def same(dtype: int, shape: list[Any] | None = None) -> bytes:
    node = helper.make_node("Identity", ["x"], ["y"])
    axes: list[Any] = ["rows", 2] if shape is None else shape
    return models.onnx_file([node], {"x": axes}, {"y": axes}, dtype=dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_goes_in_and_out(dtype: str) -> None:
    document = models.changed(models.ROWS, "inputs.0.dtype", dtype)
    document = models.changed(document, "outputs.0.dtype", dtype)
    value = np.array([[0, 1], [1, 0]], dtype)
    given = load(document, same(TYPES[dtype])).run({"x": value})["y"]
    assert (given.dtype.name, given.tolist()) == (dtype, value.tolist())


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.UINT32, TensorProto.UINT64])
def test_types_that_model_yaml_cannot_say(dtype: int) -> None:
    with pytest.raises(ModelFileError, match=r"model\.yaml makes it float32"):
        load(models.ROWS, same(dtype))


def test_a_file_with_one_input_more(publisher: Publisher) -> None:
    one = models.changed(models.changed(models.PAIR, "golden", ...), "engines.0.inputs", {})
    one["inputs"] = [one["inputs"][0] | {"name": "l"}]
    with pytest.raises(ModelFileError, match=r"needs an input 'r' that model\.yaml lacks"):
        load(one, models.pair())


def test_open_axes_are_filled_by_each_request() -> None:
    session = load(models.ROWS, models.rows())
    for count in (3, 1, 3):
        value = np.ones((count, 2), "f4")
        assert session.run({"x": value})["y"].tolist() == (value * 2).tolist()
    fixed = load(models.changed(models.ROWS, "inputs.0.shape", [4, 2]), models.rows())
    assert fixed.run({"x": np.ones((4, 2), "f4")})["y"].shape == (4, 2)


def test_an_input_that_the_graph_fails_over() -> None:
    """Two open axes that the graph must multiply: only running shows that they don't fit."""
    node = helper.make_node("Add", ["a", "b"], ["y"])
    data = models.onnx_file([node], {"a": ["n"], "b": ["m"]}, {"y": ["k"]})
    document = models.changed(models.ROWS, "outputs.0.shape", ["K"])
    document["inputs"] = [
        {"name": "a", "dtype": "float32", "shape": ["N"]},
        {"name": "b", "dtype": "float32", "shape": ["M"]},
    ]
    session = load(document, data)
    with pytest.raises(EngineFailedError, match="ONNX Runtime failed: "):
        session.run({"a": np.ones(2, "f4"), "b": np.ones(3, "f4")})
    with pytest.raises(TensorError, match="ONNX Runtime refuses the input"):
        session.run({"a": np.ones((2, 1), "f4"), "b": np.ones(2, "f4")})
    with pytest.raises(TensorError, match="ONNX Runtime refuses the input"):
        session.run({"a": np.ones(2, "f8"), "b": np.ones(2, "f4")})
    good = session.run({"a": np.ones(2, "f4"), "b": np.ones(2, "f4")})
    assert good["y"].tolist() == [2, 2]


def test_an_output_in_the_engines_layout_is_turned_back() -> None:
    document = models.changed(models.ROWS, "engines.0.layout", "NHWC")
    for field in ("inputs", "outputs"):
        document[field][0] |= {"shape": [1, 3, 2, 5], "layout": "NCHW"}
    session = load(document, same(TensorProto.FLOAT, [1, 2, 5, 3]))
    described = np.arange(30, dtype="f4").reshape(1, 3, 2, 5)
    given = session.run({"x": described.transpose(0, 2, 3, 1).copy()})["y"]
    assert given.tolist() == described.tolist()
    assert given.flags.c_contiguous


def expanded(declared: list[Any]) -> bytes:
    """Ones of the shape that the input says, whatever the file declares."""
    nodes = [
        helper.make_node("Cast", ["x"], ["s"], to=TensorProto.INT64),
        helper.make_node("Expand", ["one", "s"], ["y"]),
    ]
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    return models.onnx_file(nodes, {"x": ["n"]}, {"y": declared}, [one])


def run_expanded(shape: list[int], declared: list[Any], output: dict[str, Any]) -> Any:
    document = models.changed(models.ROWS, "inputs.0.shape", ["R"])
    document["engines"][0]["layout"] = "NHWC" if "layout" in output else None
    document["outputs"][0] |= output
    return load(document, expanded(declared)).run({"x": np.array(shape, "f4")})["y"]


@pytest.mark.parametrize(
    ("shape", "output", "words"),
    [
        ([8], {"shape": [4]}, r"\[8\], model\.yaml makes it \[4\]"),
        ([0], {"shape": [4]}, r"\[0\], model\.yaml makes it \[4\]"),
        ([2, 2], {"shape": [4]}, r"\[2, 2\], model\.yaml makes it \[4\]"),
        ([2, 2], {"shape": ["K"]}, r"\[2, 2\], model\.yaml makes it \['K'\]"),
        ([1 << 27], {"shape": ["K"]}, "536870912 bytes, the limit is 268435456"),
    ],
)
def test_an_output_that_is_not_as_declared(
    shape: list[int], output: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelFileError, match=words):
        run_expanded(shape, ["k"], output)


def test_an_output_whose_rank_lies_is_not_turned() -> None:
    output = {"shape": ["A", "B", "C", "D"], "layout": "NCHW"}
    with pytest.raises(ModelFileError, match=r"\[2, 2\], model\.yaml makes it"):
        run_expanded([2, 2], ["a", "b", "c", "d"], output)
    assert run_expanded([1, 2, 3, 4], ["a", "b", "c", "d"], output).shape == (1, 4, 2, 3)


def test_more_memory_than_there_is() -> None:
    with pytest.raises(EngineFailedError, match="ONNX Runtime failed: "):
        run_expanded([1 << 20, 1 << 22], ["k", "l"], {"shape": ["K", "L"]})


def test_a_warning_of_the_engine_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """An unused weight makes ONNX Runtime warn on stderr by default."""
    unused = helper.make_tensor("unused", TensorProto.FLOAT, [1], [1.0])
    node = helper.make_node("Add", ["x", "x"], ["y"])
    load(models.ROWS, models.onnx_file([node], {"x": ["n", 2]}, {"y": ["n", 2]}, [unused]))
    assert capfd.readouterr() == ("", "")


def test_an_unknown_operator() -> None:
    data = models.onnx_file([helper.make_node("Frobnicate", ["x"], ["y"])], {"x": [1]}, {"y": [1]})
    with pytest.raises(ModelFileError, match="ONNX Runtime refuses the model") as caught:
        load(models.ROWS, data)
    assert caught.value.path == "model.onnx"


def test_describe() -> None:
    inputs, outputs = onnx.describe(ModelFile(models.rows()), "m.onnx")
    assert inputs == [NativeTensor("x", "float32", (None, 2))]
    assert outputs == [NativeTensor("y", "float32", (None, 2))]
    with pytest.raises(ModelFileError, match=r"^m\.onnx: "):
        onnx.describe(ModelFile(b"text"), "m.onnx")


def test_describe_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailableError, match="can't be imported"):
        onnx.describe(ModelFile(models.rows()), "m.onnx")
    assert BACKEND.stamp() is None


def test_beside_other_work_its_threads_sleep_while_they_wait() -> None:
    described = model_yaml.parse(models.text(models.PAIR))
    session: Any = onnx.OnnxBackend(spins=False).load(
        ModelFile(models.pair()), described, described.engines[0], 2
    )
    options = session._native.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
