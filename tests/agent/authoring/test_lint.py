"""What the command line can't show of lint: children that die, and the flatbuffer reader."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.authoring.lint import isolated, tflite_file
from edge_agent.authoring.lint.findings import Finding, one_line
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
        ("os.kill(os.getpid(), 11)", "engine-crashes", "SIGSEGV in the parser"),
        ("os.kill(os.getpid(), 6)", "engine-crashes", "SIGABRT in the parser"),
        ("os._exit(3)", "engine-crashes", "exit code 3 in the parser"),
        ("time.sleep(60)", "engine-hangs", "longer than 1 s in the parser"),
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
    with pytest.raises(UnavailableError, match="its start"):
        isolated.look(job)


def test_sound_files_have_no_findings(job: isolated.Job, tmp_path: Path) -> None:
    assert isolated.look(job).findings == []
    (tmp_path / "m.tflite").write_bytes(tflite.relu())
    seen = isolated.look(isolated.Job(str(tmp_path), "m.tflite", "tflite"))
    assert (seen.findings, seen.notes) == ([], [])


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
