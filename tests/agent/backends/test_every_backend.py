"""One suite for the `Backend` interface, run against each real engine with the demo's files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import structs

from edge_agent import keyrings
from edge_agent.backends.base import EngineStatus, ModelFile
from edge_agent.backends.registry import BACKENDS
from edge_agent.errors import ModelFileError, TensorError
from tests.agent import models

if TYPE_CHECKING:
    from tests.agent.conftest import Python

    from .conftest import DemoOn

PACKAGES = {"onnx": "onnxruntime", "tflite": "ai_edge_litert"}


def test_status_and_stamp(demo_on: DemoOn) -> None:
    status = demo_on.backend.status()
    assert (status.engine, status.available, status.problem) == (demo_on.engine, True, None)
    assert (status.version or "").replace("-", "_").startswith(PACKAGES[demo_on.engine] + " ")
    stamp = demo_on.backend.stamp()
    assert stamp == demo_on.backend.stamp()
    assert (stamp or "").startswith(PACKAGES[demo_on.engine] + ":")


def test_the_golden_answer(demo_on: DemoOn) -> None:
    outputs = demo_on.session.run(demo_on.inputs(demo_on.coffee))
    golden = demo_on.description.golden
    assert golden and golden.top
    index, score = demo_on.best(outputs)
    assert index == golden.top.index
    assert score == pytest.approx(golden.top.score, abs=golden.top.tolerance)


def test_outputs_are_as_described_and_stay_valid(demo_on: DemoOn) -> None:
    first = demo_on.session.run(demo_on.inputs(demo_on.coffee))
    kept = {name: value.copy() for name, value in first.items()}
    second = demo_on.session.run(demo_on.inputs(models.png((0, 0, 255), 300)))
    assert list(first) == ["logits"]
    for outputs in (first, second):
        assert (outputs["logits"].shape, outputs["logits"].dtype.name) == ((1, 1000), "float32")
    assert not np.array_equal(first["logits"], second["logits"])
    assert np.array_equal(first["logits"], kept["logits"])
    assert not np.shares_memory(first["logits"], second["logits"])


def test_the_same_input_gives_the_same_answer(demo_on: DemoOn) -> None:
    inputs = demo_on.inputs(demo_on.coffee)
    one, other = (demo_on.load(threads).run(inputs)["logits"] for threads in (1, 2))
    assert np.array_equal(one, demo_on.session.run(inputs)["logits"])
    assert np.allclose(one, other, atol=1e-3)


def test_inputs_may_be_read_only_and_are_not_changed(demo_on: DemoOn) -> None:
    inputs = demo_on.inputs(demo_on.coffee)
    before = inputs["images"].copy()
    inputs["images"].flags.writeable = False
    assert demo_on.best(demo_on.session.run(inputs))[0] == 967
    assert np.array_equal(inputs["images"], before)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((1, 3, 8, 8), "f4"),
        np.zeros((2, 224, 224, 3), "f4"),
        np.zeros(5, "f4"),
        np.zeros((1, 224, 224), "f4"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_and_spoils_nothing(
    demo_on: DemoOn, value: Any
) -> None:
    for _ in range(2):
        with pytest.raises(TensorError):
            demo_on.session.run({"images": value})
    assert demo_on.best(demo_on.session.run(demo_on.inputs(demo_on.coffee)))[0] == 967


@pytest.mark.parametrize("damage", ["empty", "text", "zeros", "cut", "half", "head", "the other"])
def test_a_damaged_file_is_refused(demo_on: DemoOn, damage: str) -> None:
    good = demo_on.model.data
    other = "tflite" if demo_on.engine == "onnx" else "onnx"
    data = {
        "empty": b"",
        "text": b"version https://git-lfs.github.com/spec/v1\n",
        "zeros": bytes(len(good)),
        "cut": good[:-5000],
        "half": good[: len(good) // 2],
        "head": bytes(64) + good[64:],
        "the other": next(keyrings.DEMO_BUNDLE.glob(f"weights/*.{other}")).read_bytes(),
    }[damage]
    with pytest.raises(ModelFileError) as caught:
        demo_on.backend.load(ModelFile(data), demo_on.description, demo_on.part, 1)
    assert caught.value.path == demo_on.part.file


def described(demo_on: DemoOn, **changes: Any) -> tuple[Any, Any]:
    """The demo's description and engine entry with one thing wrong."""
    description, part = demo_on.description, demo_on.part
    for field in ("inputs", "outputs"):
        for what in ("name", "dtype", "shape", "layout"):
            if (key := f"{field}_{what}") in changes:
                (spec,) = getattr(description, field)
                spec = structs.replace(spec, **{what: changes[key]})
                description = structs.replace(description, **{field: (spec,)})
    parts = {key[5:]: value for key, value in changes.items() if key.startswith("part_")}
    return description, structs.replace(part, **parts)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "input shape": ({"inputs_shape": (1, 3, 224, 225)}, "has the shape [1, "),
    "input rank": ({"inputs_shape": (3, 224, 224), "inputs_layout": None}, "has the shape [1, "),
    "batch": ({"inputs_shape": (2, 3, 224, 224)}, "has the shape [1, "),
    "output shape": ({"outputs_shape": (1, 1001)}, "has the shape [1, 1000]"),
    "output rank": ({"outputs_shape": (1000,)}, "has the shape [1, 1000]"),
    "input dtype": ({"inputs_dtype": "uint8"}, "model.yaml makes it uint8"),
    "wider input": ({"inputs_dtype": "int16"}, "model.yaml makes it int16"),
    "output dtype": ({"outputs_dtype": "int64"}, "model.yaml makes it int64"),
    "input name": ({"part_inputs": {"images": "nothing"}}, "the file has no input 'nothing'"),
    "output name": ({"part_outputs": {"logits": "nothing"}}, "the file has no output 'nothing'"),
    "the output's name": ({"inputs_name": "logits", "part_inputs": {}}, "has no input 'logits'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_not_as_described_is_refused(demo_on: DemoOn, case: str) -> None:
    changes, words = WRONG[case]
    description, part = described(demo_on, **changes)
    with pytest.raises(ModelFileError) as caught:
        demo_on.backend.load(demo_on.model, description, part, 1)
    assert words in caught.value.message


def test_the_wrong_layout_is_refused(demo_on: DemoOn) -> None:
    other = "NCHW" if demo_on.part.layout == "NHWC" else "NHWC"
    description, part = described(demo_on, part_layout=other)
    with pytest.raises(ModelFileError, match="has the shape"):
        demo_on.backend.load(demo_on.model, description, part, 1)


def test_loading_and_running_says_nothing(
    demo_on: DemoOn, capfd: pytest.CaptureFixture[str]
) -> None:
    session = demo_on.load()
    session.run(demo_on.inputs(demo_on.coffee))
    with pytest.raises(ModelFileError):
        demo_on.backend.load(ModelFile(b""), demo_on.description, demo_on.part, 1)
    os.write(2, b"and stderr still works\n")
    assert capfd.readouterr() == ("", "and stderr still works\n")


THREADS = """
import os, sys
import numpy as np
from pathlib import Path
from edge_agent import model_yaml
from edge_agent.backends.base import ModelFile
from edge_agent.backends.registry import BACKENDS
folder, engine, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
described = model_yaml.parse((folder / "model.yaml").read_bytes())
part, backend = described.engine(engine), BACKENDS[engine]
backend.status()
before = len(os.listdir("/proc/self/task"))
session = backend.load(ModelFile((folder / part.file).read_bytes()), described, part, threads)
shape = (1, 224, 224, 3) if part.layout == "NHWC" else (1, 3, 224, 224)
session.run({"images": np.zeros(shape, np.float32)})
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize("engine", list(BACKENDS))
@pytest.mark.parametrize("threads", [1, 3])
def test_the_engine_runs_with_as_many_threads(python: Python, engine: str, threads: int) -> None:
    # The caller's own thread is one of them.
    started = python.run(THREADS, keyrings.DEMO_BUNDLE, engine, str(threads))
    assert int(started) == threads - 1


UNAVAILABLE = """
import sys
from pathlib import Path
from edge_agent import model_yaml
from edge_agent.backends.base import ModelFile
from edge_agent.backends.registry import BACKENDS
from edge_agent.errors import EngineUnavailableError
folder, engine, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
packages = {"onnx": ["onnxruntime"], "tflite": ["ai_edge_litert", "tflite_runtime"]}[engine]
for package in packages:
    if how == "missing":
        sys.modules[package] = None
    else:
        made = Path.cwd() / package
        made.mkdir()
        (made / "__init__.py").write_text({
            "broken": "raise OSError('libgomp.so.1: cannot open shared object file')",
            "very broken": "raise AttributeError('_ARRAY_API not found')",
            "hollow": "",
        }[how])
sys.path.insert(0, str(Path.cwd()))
backend = BACKENDS[engine]
status = backend.status()
described = model_yaml.parse((folder / "model.yaml").read_bytes())
part = described.engine(engine)
try:
    backend.load(ModelFile(b""), described, part, 1)
except EngineUnavailableError as error:
    assert error.message == status.problem and error.hint == status.hint
    print(status.available, status.version, status.problem, "|", status.hint)
    print(backend.stamp() is None)
"""


@pytest.mark.parametrize("engine", list(BACKENDS))
@pytest.mark.parametrize("how", ["missing", "broken", "very broken", "hollow"])
def test_an_engine_that_is_not_there_is_reported(python: Python, engine: str, how: str) -> None:
    out = python.run(UNAVAILABLE, keyrings.DEMO_BUNDLE, engine, how).splitlines()
    assert out[0].startswith("False None ")
    package = {"onnx": "onnxruntime", "tflite": "ai-edge-litert"}[engine]
    assert f"pip install {package}" in out[0]
    if "broken" in how:
        assert ("libgomp" in out[0]) or ("_ARRAY_API" in out[0])
    assert out[1] == str(how == "missing")


def test_looking_at_the_table_imports_no_engine(python: Python) -> None:
    loaded = python.run(
        "import sys; from edge_agent.backends.registry import BACKENDS;"
        "stamps = [one.stamp() for one in BACKENDS.values()]; assert all(stamps), stamps;"
        "print(*(m for m in ('numpy', 'onnxruntime', 'ai_edge_litert') if m in sys.modules))"
    )
    assert loaded.split() == []


def test_status_says_available_only_without_a_problem() -> None:
    assert EngineStatus("x", "1").available
    assert not EngineStatus("x", None, "gone").available
