"""What the command line can't show of lint: children that die, and the flatbuffer reader."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge_agent.authoring.lint import isolated, onnx_data, onnx_operators, onnx_weights, tflite_file
from edge_agent.authoring.lint.findings import Finding, one_line
from edge_agent.authoring.quantising import qdq
from edge_agent.errors import UnavailableError
from tests.agent import models

tflite = pytest.importorskip("tests.agent.backends.test_tflite")


@pytest.fixture
def job(tmp_path: Path) -> isolated.Job:
    (tmp_path / "m.onnx").write_bytes(models.colour())
    return isolated.Job(str(tmp_path), "m.onnx", "onnx")


def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "child"
    program.write_text(f"#!{sys.executable}\nimport os, sys, time, json\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


SAID = """
def say(**what): print(json.dumps(what), flush=True)
say(facts={"quantised": True}); say(stage="the parser")
say(finding={"code": "graph-cycle", "path": "m.onnx", "message": "x"})
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("os.kill(os.getpid(), 11)", "engine-crashes", "in the parser, the process was ended by"),
        ("os.kill(os.getpid(), 6)", "engine-crashes", "signal SIGABRT"),
        ("os.kill(os.getpid(), 40)", "engine-crashes", "the signal 40"),
        ("os._exit(3)", "engine-crashes", "exit code 3"),
        ("time.sleep(60)", "engine-hangs", "in the parser, the process took longer than 1 s"),
        ("os.write(1, b'{'); os.kill(os.getpid(), 9)", "engine-crashes", "SIGKILL"),
    ],
)  # fmt: skip
def test_a_child_that_ends_badly_is_a_finding(
    end: str, code: str, said: str, job: isolated.Job, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    child(tmp_path, monkeypatch, SAID + end)
    seen = isolated.look(job, timeout_s=1)
    assert [one.code for one in seen.findings] == ["graph-cycle", code]
    assert said in seen.findings[-1].message
    assert seen.facts == {"quantised": True}


def test_a_child_that_does_not_start_is_nobodys_model(
    job: isolated.Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child(tmp_path, monkeypatch, "os._exit(1)")
    with pytest.raises(UnavailableError, match="exit code 1"):
        isolated.look(job)


def test_sound_files_have_no_findings(job: isolated.Job, tmp_path: Path) -> None:
    assert isolated.look(job).findings == []
    (tmp_path / "m.tflite").write_bytes(tflite.relu())
    seen = isolated.look(isolated.Job(str(tmp_path), "m.tflite", "tflite"))
    assert (seen.findings, seen.notes) == ([], [])


def per_tensor(
    operator: str, weights: tuple[int, ...], scale: tuple[int, ...], **more: Any
) -> list[str]:
    """What is said of a layer whose weights, and their scale, have these shapes."""
    axis: Any = {"axis": more.pop("axis")} if "axis" in more else {}
    layer = helper.make_node(operator, ["x", "w"], ["y"], **more)
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["q", "s"], ["w"], **axis), layer],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(weights, "int8"), "q"),
         numpy_helper.from_array(np.ones(scale, "float32"), "s")],
    )  # fmt: skip
    model = helper.make_model(graph)
    found = [one.code for one in onnx_weights.check(Path(), "m.onnx", model, with_external=False)]
    assert qdq.count_weights(model).per_tensor == len(found)
    return found


@pytest.mark.parametrize(
    ("operator", "weights", "scale", "more", "is_told"),
    [
        ("Conv", (8, 3, 3, 3), (), {}, True), ("Conv", (8, 3, 3, 3), (1,), {"axis": 0}, True),
        ("Conv", (8, 3, 3, 3), (8,), {"axis": 0}, False),
        ("Conv", (1, 3, 3, 3), (1,), {"axis": 0}, False), ("Conv", (1, 3, 3, 3), (), {}, False),
        ("ConvTranspose", (3, 1, 2, 2), (1,), {"axis": 1}, False),
        ("MatMul", (4, 1), (1,), {"axis": 1}, False), ("MatMul", (4, 2), (1,), {"axis": 1}, True),
        ("MatMul", (4, 2), (1,), {"axis": -1}, True),
        ("Gemm", (1, 4), (1,), {"axis": 0, "transB": 1}, False),
    ],
)  # fmt: skip
def test_one_scale_for_all_channels(
    operator: str,
    weights: tuple[int, ...],
    scale: tuple[int, ...],
    more: dict[str, int],
    is_told: bool,
) -> None:
    assert per_tensor(operator, weights, scale, **more) == ["weights-per-tensor"] * is_told


def test_axis_that_weights_lack_is_no_crash() -> None:
    assert per_tensor("Conv", (8, 3, 3, 3), (), axis=9) == ["weights-per-tensor"]


@pytest.mark.parametrize(
    ("kind", "elements", "size"),
    [
        ("FLOAT", 3, 12), ("DOUBLE", 3, 24), ("BFLOAT16", 3, 6), ("BOOL", 3, 3), ("INT4", 3, 2),
        ("UINT4", 4, 2), ("FLOAT4E2M1", 5, 3), ("FLOAT8E8M0", 3, 3), ("FLOAT8E5M2", 3, 3),
        ("UINT2", 5, 2), ("INT2", 4, 1), ("COMPLEX128", 2, 32), ("STRING", 3, 0),
    ],
)  # fmt: skip
def test_bytes_of_elements(kind: str, elements: int, size: int) -> None:
    number = TensorProto.DataType.items()
    types = dict(number) | {"UINT2": 25, "INT2": 26, "FLOAT8E8M0": 24, "FLOAT4E2M1": 23}
    tensor = TensorProto(data_type=types[kind], dims=[elements])
    assert onnx_data.bytes_of(tensor) == size


@pytest.mark.skipif(
    not hasattr(TensorProto, "FLOAT4E2M1"),
    reason="older versions of onnx say float32 of small floats",
)
def test_every_type_of_onnx_has_its_size() -> None:
    for name, number in TensorProto.DataType.items():
        if name in ("UNDEFINED", "STRING"):
            continue
        bits = onnx_data.bytes_of(TensorProto(data_type=number, dims=[8]))
        whole = helper.tensor_dtype_to_np_dtype(number).itemsize * 8
        packed = re.match(r"(?:U?INT|FLOAT)([246])(?:E|$)", name)
        assert bits == (int(packed[1]) if packed else whole), name


@pytest.mark.parametrize(("version", "said"), [(6, "begins with 7"), (99, "knows them up to")])
def test_opsets_are_told_by_who_knows_them(version: int, said: str) -> None:
    model = helper.make_model(
        helper.make_graph([], "test", [], []), opset_imports=[helper.make_opsetid("", version)]
    )
    (found,) = onnx_operators.check(model, "m.onnx")
    assert (found.code, said in found.message) == ("opset-unsupported", True)


def custom(name: str) -> bytes:
    import flatbuffers

    schema = tflite.schema
    model = schema.ModelT()
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = 32
    code.customCode = name.encode()
    model.version, model.buffers, model.subgraphs = 3, [schema.BufferT()], []
    model.operatorCodes = [code, schema.OperatorCodeT()]
    builder = flatbuffers.Builder(256)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def test_custom_operators_of_tflite(tmp_path: Path) -> None:
    assert tflite_file.custom_operators(custom("FlexErf")) == ["FlexErf"]
    assert tflite_file.custom_operators(tflite.relu()) == []
    (tmp_path / "m.tflite").write_bytes(custom("FlexErf"))
    (only,) = isolated.look(isolated.Job(str(tmp_path), "m.tflite", "tflite")).findings
    assert (only.code, "FlexErf" in only.message) == ("op-custom", True)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_flatbuffers_are_refused_at_once(data: Any) -> None:
    sound = bytearray(custom("Flex"))
    for _ in range(data.draw(st.integers(1, 8))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    try:
        names = tflite_file.custom_operators(bytes(sound))
    except (ValueError, IndexError, struct.error):
        return
    assert sum(map(len, names)) < 10_000 * 256


def test_what_libraries_say_becomes_one_line() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert len(one_line("x" * 5000)) == 300
    finding = Finding("hole", "model.yaml", "x is a hole", 3)
    assert str(finding) == "model.yaml:3: error hole x is a hole"
