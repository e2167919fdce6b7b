"""What only the TFLite backend does: quantised tensors, open axes, two packages, its log."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_agent import model_yaml
from edge_agent.backends.base import ModelFile
from edge_agent.backends.tflite import TfliteBackend
from edge_agent.errors import (
    EngineFailedError,
    EngineUnavailableError,
    ModelFileError,
    TensorError,
)
from tests.agent import models

if TYPE_CHECKING:
    from tests.agent.conftest import Python

schema: Any = pytest.importorskip("ai_edge_litert.schema_py_generated")
BACKEND = TfliteBackend()
RELU, INT8, FLOAT32 = 19, "INT8", "FLOAT32"


def tensor(name: str, dtype: str, shape: list[int], quantised: tuple[float, int] | None) -> Any:
    made = schema.TensorT()
    made.name, made.type, made.buffer = name.encode(), getattr(schema.TensorType, dtype), 0
    made.shape = np.array([max(axis, 1) for axis in shape], np.int32)
    if -1 in shape:
        made.shapeSignature = np.array(shape, np.int32)
    if quantised:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale = np.array(quantised[:1], np.float32)
        made.quantization.zeroPoint = np.array(quantised[1:], np.int64)
    return made


def relu(
    dtype: str = FLOAT32,
    shape: list[int] | None = None,
    quantised: tuple[float, int] | None = None,
    names: tuple[str, str] = ("x", "y"),
) -> bytes:
    """One RELU as a .tflite file."""
    import flatbuffers

    graph, operator, code = schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    graph.tensors = [tensor(name, dtype, shape or [-1, 2], quantised) for name in names]
    graph.inputs = operator.inputs = np.array([0], np.int32)
    graph.outputs = operator.outputs = np.array([1], np.int32)
    graph.operators = [operator]
    operator.opcodeIndex = 0
    code.builtinCode = code.deprecatedBuiltinCode = RELU
    code.version = 2 if dtype == INT8 else 1
    model = schema.ModelT()
    model.version, model.buffers = 3, [schema.BufferT()]
    model.subgraphs, model.operatorCodes = [graph], [code]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def load(data: bytes, **changes: Any) -> Any:
    document = models.changed(
        models.ROWS, "engines", [{"engine": "tflite", "file": "m.tflite"} | changes.pop("part", {})]
    )
    for key, value in changes.items():
        for side in ("inputs", "outputs"):
            document[side][0][key] = value
    described = model_yaml.parse(models.text(document))
    return BACKEND.load(ModelFile(data), described, described.engines[0], 1)


def test_open_axes_are_resized_by_each_request() -> None:
    session = load(relu())
    for count in (1, 4, 4, 2, 1):
        value = np.arange(2 * count, dtype="f4").reshape(count, 2) - 2
        assert session.run({"x": value})["y"].tolist() == np.maximum(value, 0).tolist()


def test_a_shape_that_is_refused_does_not_spoil_the_next() -> None:
    session = load(relu())
    session.run({"x": np.ones((3, 2), "f4")})
    for bad in (np.ones((3, 3), "f4"), np.ones((3, 3), "f4"), np.ones(2, "f4")):
        with pytest.raises(TensorError, match="LiteRT refuses the input"):
            session.run({"x": bad})
    for count in (3, 1):
        assert session.run({"x": np.ones((count, 2), "f4")})["y"].tolist() == [[1, 1]] * count


def test_an_engine_that_fails_is_told_from_an_input_that_it_refuses() -> None:
    value = {"x": np.ones((1, 2), "f4")}
    for method in ("invoke", "get_tensor"):
        for fault in (RuntimeError("node 0 failed"), ValueError("null"), MemoryError()):
            session = load(relu())

            def fail(*_: Any, fault: Exception = fault) -> None:
                raise fault

            class Broken:
                def __init__(self, native: Any, name: str, method: Any) -> None:
                    self._native = native
                    setattr(self, name, method)

                def __getattr__(self, name: str) -> Any:
                    return getattr(self._native, name)

            session._native = Broken(session._native, method, fail)
            with pytest.raises(EngineFailedError, match="LiteRT failed: "):
                session.run(value)


def test_an_output_that_is_not_as_described() -> None:
    session = load(relu())
    session._native = type(
        "Lying",
        (),
        {
            "set_tensor": lambda *_: None,
            "resize_tensor_input": lambda *_, **__: None,
            "allocate_tensors": lambda *_: None,
            "invoke": lambda *_: None,
            "get_tensor": lambda *_: np.zeros((1, 3), "f4"),
        },
    )()
    with pytest.raises(ModelFileError, match=r"\[1, 3\], model\.yaml makes it \['N', 2\]"):
        session.run({"x": np.ones((1, 2), "f4")})


def test_outputs_stay_valid_after_other_shapes() -> None:
    session = load(relu())
    first = session.run({"x": np.full((2, 2), 7, "f4")})["y"]
    session.run({"x": np.full((9, 2), 1, "f4")})
    session.run({"x": np.full((2, 2), 3, "f4")})
    assert first.tolist() == [[7, 7], [7, 7]]


def test_real_numbers_for_a_quantised_file() -> None:
    """``real = (q - zero_point) * scale``, rounded half to even and saturated."""
    session = load(relu(INT8, quantised=(0.5, 3)))
    value = np.array([[1.2, -1.0], [0.25, 0.75], [1e9, 62.0], [-1e9, 0.0]], "f4")
    given = session.run({"x": value})["y"]
    assert given.dtype == np.float32
    assert given.tolist() == [[1.0, 0.0], [0.0, 1.0], [62.0, 62.0], [0.0, 0.0]]


def test_half_precision_for_a_quantised_file() -> None:
    given = load(relu(INT8, quantised=(0.5, 3)), dtype="float16").run(
        {"x": np.array([[1.5, -1.0]], "f2")}
    )["y"]
    assert (given.dtype, given.tolist()) == (np.float16, [[1.5, 0.0]])


def test_plain_integers_of_a_quantised_file() -> None:
    given = load(relu(INT8, quantised=(0.5, 3)), dtype="int8").run(
        {"x": np.array([[4, -100]], "i1")}
    )["y"]
    assert (given.dtype, given.tolist()) == (np.int8, [[4, 3]])


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool", "int64"])
def test_other_integers_are_never_converted(dtype: str) -> None:
    with pytest.raises(ModelFileError, match=f"model.yaml makes it {dtype}") as caught:
        load(relu(INT8, quantised=(0.5, 3)), dtype=dtype)
    assert caught.value.path == "m.tflite"


def test_real_numbers_for_integers_without_quantisation() -> None:
    with pytest.raises(ModelFileError, match="int8 without quantisation in the file"):
        load(relu(INT8))


def test_an_input_and_an_output_of_one_name() -> None:
    part = {"inputs": {"x": "t"}, "outputs": {"y": "t"}}
    session = load(relu(names=("t", "t")), part=part)
    assert session.run({"x": np.array([[-1, 2]], "f4")})["y"].tolist() == [[0, 2]]


def test_an_output_in_the_engines_layout_is_turned_back() -> None:
    part, shape = {"layout": "NHWC"}, [1, 3, 2, 5]
    for data in (relu(shape=[1, 2, 5, 3]), relu(INT8, [1, 2, 5, 3], quantised=(0.5, 0))):
        session = load(data, part=part, shape=shape, layout="NCHW")
        described = np.arange(30, dtype="f4").reshape(1, 3, 2, 5)
        given = session.run({"x": described.transpose(0, 2, 3, 1).copy()})["y"]
        assert given.tolist() == described.tolist()
        assert given.flags.c_contiguous


@pytest.fixture
def old_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ai-edge-litert is gone and a package that calls itself tflite-runtime 2.14 is there."""
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    for name in ("tflite_runtime", "tflite_runtime.interpreter"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    package, facts = tmp_path / "tflite_runtime", tmp_path / "tflite_runtime-2.14.0.dist-info"
    package.mkdir()
    facts.mkdir()
    (package / "__init__.py").write_text("")
    (package / "interpreter.py").write_text("class Interpreter: pass\n")
    (facts / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tflite-runtime\nVersion: 2.14.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize("numpy", ["2.0.0", "2.4.6", "10.0.0"])
def test_the_old_runtime_is_refused_beside_numpy_2(
    old_runtime: Path, monkeypatch: pytest.MonkeyPatch, numpy: str
) -> None:
    monkeypatch.setattr(np, "__version__", numpy)
    status = BACKEND.status()
    assert not status.available
    assert f"tflite-runtime needs NumPy below 2, this is {numpy}" in (status.problem or "")
    with pytest.raises(EngineUnavailableError):
        load(relu())


def test_the_old_runtime_is_used_beside_numpy_1(
    old_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "__version__", "1.26.4")
    assert BACKEND.status().version == "tflite-runtime 2.14.0"
    assert (BACKEND.stamp() or "").startswith("tflite_runtime:")
    (old_runtime / "interpreter.py").write_text("raise ImportError('no _ARRAY_API')")
    for name in ("tflite_runtime", "tflite_runtime.interpreter"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    shutil.rmtree(old_runtime / "__pycache__", ignore_errors=True)
    assert "no _ARRAY_API" in (BACKEND.status().problem or "")


def test_sessions_made_by_many_threads_leave_stderr_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    data, problems = relu(), []

    def work() -> None:
        try:
            for _ in range(5):
                load(data)
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []
    os.write(2, b"still there\n")
    assert capfd.readouterr() == ("", "still there\n")


WITHOUT_STDERR = """
import os, subprocess, sys
script = '''
import os, sys
from pathlib import Path
other = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
assert other == 2, other  # the number of the stderr that isn't there
from edge_agent import model_yaml
from edge_agent.backends.base import ModelFile
from edge_agent.backends.tflite import TfliteBackend
folder = Path(sys.argv[1])
described = model_yaml.parse((folder / "model.yaml").read_bytes())
part = described.engine("tflite")
model = ModelFile((folder / part.file).read_bytes())
TfliteBackend().load(model, described, part, 1)
print("loaded")
'''
arguments = [sys.executable, "-c", script, sys.argv[1], sys.argv[2]]
os.close(2)
os.execv(sys.executable, arguments)
"""


def test_a_process_that_has_no_stderr(python: Python, tmp_path: Path) -> None:
    from edge_agent import keyrings

    out = python.run(WITHOUT_STDERR, keyrings.DEMO_BUNDLE, tmp_path / "other")
    assert out == "loaded\n"
