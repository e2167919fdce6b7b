"""From a bare model to a signed bundle that answers: init, golden, lint, build, sign, infer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper

from edge_signing.ed25519 import PrivateKey
from edge_signing.keyring import Keyring
from edge_signing.keys import save_private_key
from tests.agent.marks import needs_external_data

from .conftest import ROOT, Run, colour_model

F, I64 = TensorProto.FLOAT, TensorProto.INT64
Axes = list[Any]


def onnx_file(
    nodes: list[Any],
    inputs: Mapping[str, tuple[int, Axes]],
    outputs: Mapping[str, tuple[int, Axes]],
    weights: dict[str, Any] | None = None,
    metadata: dict[str, str] | None = None,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, *what) for name, what in inputs.items()],
        [helper.make_tensor_value_info(name, *what) for name, what in outputs.items()],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    data: bytes = model.SerializeToString()
    return data


def text_model() -> bytes:
    """Two inputs of ids and mask, both axes open: the mean of embeddings, then two scores."""
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["words"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=F),
        helper.make_node("Unsqueeze", ["mask", "two"], ["mask3"]),
        helper.make_node("Mul", ["words", "mask3"], ["kept"]),
        helper.make_node("ReduceMean", ["kept"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["mean", "head"], ["logits"]),
    ]
    return onnx_file(
        nodes,
        {"input_ids": (I64, ["batch", "seq"]), "attention_mask": (I64, ["batch", "seq"])},
        {"logits": (F, ["batch", 2])},
        {
            "table": rng.normal(size=(30, 4)).astype("f4"),
            "head": rng.normal(size=(4, 2)).astype("f4"),
            "two": np.array([2], "i8"),
        },
    )


def tabular_model() -> bytes:
    node = helper.make_node("MatMul", ["features", "w"], ["price"])
    weights = {"w": np.arange(5, dtype="f4").reshape(5, 1)}
    return onnx_file([node], {"features": (F, [None, 5])}, {"price": (F, [None, 1])}, weights)


def batch_image_model() -> bytes:
    nodes = [
        helper.make_node("GlobalAveragePool", ["pixels"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["scores"]),
    ]
    return onnx_file(nodes, {"pixels": (F, ["N", 3, 8, 8])}, {"scores": (F, ["N", 3])})


def pair_model() -> bytes:
    nodes = [helper.make_node("Mul", ["left", "right"], ["product"])]
    return onnx_file(nodes, {"left": (F, [1, 4]), "right": (F, [1, 4])}, {"product": (F, [1, 4])})


def detector_model() -> bytes:
    nodes = [
        helper.make_node("Conv", ["input.1", "w"], ["heat"], strides=[4, 4]),
        helper.make_node("Conv", ["input.1", "v"], ["size"], strides=[4, 4]),
    ]
    weights = {
        "w": np.full((1, 3, 4, 4), 0.01, "f4"),
        "v": np.full((2, 3, 4, 4), 0.02, "f4"),
    }
    outputs = {"heat": (F, [1, 1, 8, 8]), "size": (F, [1, 2, 8, 8])}
    metadata = {"task": "detect", "names": "{0: 'face'}"}
    return onnx_file(nodes, {"input.1": (F, [1, 3, 32, 32])}, outputs, weights, metadata)


IMAGE = ["--color", "BGR", "--resize", "stretch", "--preset", "plain"]
IDS, MASK = [[4, 7, 1]], [[1, 1, 0]]
KINDS: dict[str, tuple[Callable[[], bytes], list[str], dict[str, Any]]] = {
    "text": (
        text_model,
        ["--task", "text-classification"],
        {"input_ids": np.array(IDS), "attention_mask": np.array(MASK)},
    ),
    "tabular": (tabular_model, ["--task", "regression"], {"features": np.ones((2, 5), "f4")}),
    "batch": (batch_image_model, [*IMAGE, "--labels", "labels.txt"], {}),
    "pair": (
        pair_model,
        ["--task", "arithmetic"],
        {"left": np.ones((1, 4), "f4"), "right": np.full((1, 4), 3, "f4")},
    ),
    "detector": (detector_model, IMAGE, {}),
}


@pytest.fixture(scope="session")
def acme_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration with the key `acme`, trusted for acme/*."""
    folder = tmp_path_factory.mktemp("acme") / "config"
    key = PrivateKey.generate()
    (folder / "keys").mkdir(parents=True)
    save_private_key(folder / "keys/acme.key", key, None)
    ring = Keyring().with_key(key.public).with_rule("acme/*", [key.public.keyid])
    (folder / "keyring.json").write_bytes(ring.serialise())
    return folder


@pytest.fixture
def acme(acme_config: Path, tmp_path: Path) -> None:
    shutil.copytree(acme_config, tmp_path / "config")


@pytest.mark.parametrize("kind", KINDS)
def test_from_a_bare_model_to_an_answer(
    kind: str, run: Run, acme: None, tmp_path: Path, photos: Path
) -> None:
    make, options, tensors = KINDS[kind]
    (tmp_path / "m.onnx").write_bytes(make())
    (tmp_path / "labels.txt").write_text("blue\ngreen\nred\n")
    fed: list[str] = []
    for name, value in tensors.items():
        np.save(tmp_path / f"{name}.npy", value)
        fed += ["--input", f"{name}={name}.npy"]
    made = run(
        "bundle", "init", "m.onnx", "--out", "p", "--name", f"acme/{kind}", *options,
        "--license", "Apache-2.0", "--json",
    )  # fmt: skip
    assert (made.code, made.json()["holes"]) == (0, []), made.err
    image = [] if tensors else [photos / "coffee.png"]
    kept = run("bundle", "golden", "p", *image, *fed, "--json")
    assert kept.code == 0, kept.err
    assert (kept.json()["answered_by"], kept.json()["wrong"]) == ("onnx", [])
    key = [] if kind == "pair" else ["--key", "acme"]
    built = run("bundle", "build", "p", "--out", "b", "--json", *key).json()
    assert [one.split()[2] for one in built["warnings"]] == ["contract-missing"]
    for place in ("b", "b.tar") if kind == "pair" else ():
        signed = run("bundle", "sign", place, "--key", "acme", "--json")
        assert signed.json()["digest"] == built["digest"], signed.err
        assert run("bundle", "verify", f"./{place}").code == 0
    installed = run("models", "install", "b.tar", "--json")
    assert installed.json()["digest"] == built["digest"]
    answer = run("infer", *image, *fed, "--model", f"acme/{kind}", "--json")
    assert answer.code == 0, answer.err
    assert answer.json()["labels"] or answer.json()["outputs"]


def test_quantised_tflite_model_in_one_go(run: Run, acme: None, tmp_path: Path) -> None:
    tflite = pytest.importorskip("tests.agent.backends.test_tflite")
    (tmp_path / "m.tflite").write_bytes(tflite.relu("INT8", [1, 4], (0.5, -3)))
    made = run("bundle", "init", "m.tflite", "--task", "t", "--name", "acme/m", "--json")
    assert (made.code, made.json()["holes"]) == (0, []), made.err
    spec = described(tmp_path / "m")["inputs"][0]
    assert (spec["dtype"], spec["range"]) == ("float32", [-62.5, 65.0])
    np.save(tmp_path / "x.npy", np.array([[-1.0, 0.0, 2.5, 60.0]], "f4"))
    kept = run("bundle", "golden", "m", "--input", "x=x.npy", "--json").json()
    assert (kept["answered_by"], kept["tolerances"]) == ("tflite", {"y": 0.6})
    assert run("bundle", "build", "m", "--out", "b", "--key", "acme").code == 0
    answer = run("infer", "--input", "x=x.npy", "--model", "b.tar", "--json").json()
    assert answer["outputs"][0]["data"] == [0.0, 0.0, 2.5, 60.0]


def described(folder: Path) -> Any:
    return yaml.safe_load((folder / "model.yaml").read_text())


def test_init_keeps_the_files_names_of_open_axes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(text_model())
    assert run("bundle", "init", "m.onnx", "--task", "t").code == 0
    inputs = described(tmp_path / "m")["inputs"]
    assert [one["shape"] for one in inputs] == [["batch", "seq"]] * 2
    (tmp_path / "t.onnx").write_bytes(tabular_model())
    assert run("bundle", "init", "t.onnx", "--task", "t").code == 0
    assert described(tmp_path / "t")["inputs"][0]["shape"] == ["batch", 5]
    assert described(tmp_path / "t")["postprocess"] == {"kind": "raw"}
    (tmp_path / "u.onnx").write_bytes(text_model())
    told = run("bundle", "init", "u.onnx", "--task", "t").out
    assert "golden u --input input_ids=FILE --input attention_mask=FILE\n" in told


def test_what_init_cannot_know_is_a_hole(run: Run, tmp_path: Path) -> None:
    (tmp_path / "colour.onnx").write_bytes(colour_model())
    made = run("bundle", "init", "colour.onnx", "--json")
    keys = ["task", "preprocess.color", "preprocess.resize", "preprocess.normalize", "postprocess"]
    assert [one["key"] for one in made.json()["holes"]] == keys
    refused = run("bundle", "build", "colour", "--out", "b")
    assert (refused.code, "hole: task is a hole (and 4 more)" in refused.err) == (4, True)
    assert run("bundle", "golden", "colour", "x.png").code == 4
    text = (tmp_path / "colour/model.yaml").read_text()
    for line in text.splitlines():
        assert line.count("???") == 0 or line.endswith("???") or line.startswith("#"), line
    assert 'reference = "weights/colour.onnx"' in (tmp_path / "colour/build.toml").read_text()
    assert run("bundle", "init", "colour.onnx").code == 4  # exists already


@needs_external_data
def test_external_data_comes_along(run: Run, tmp_path: Path) -> None:
    import onnx

    model = onnx.load_model_from_string(text_model())
    (tmp_path / "src").mkdir()
    onnx.save(
        model, tmp_path / "src/m.onnx",
        save_as_external_data=True, location="deep.bin", size_threshold=64,
    )  # fmt: skip
    assert run("bundle", "init", "src/m.onnx", "--task", "t").code == 0
    assert sorted(one.name for one in (tmp_path / "m/weights").iterdir()) == ["deep.bin", "m.onnx"]
    np.save(tmp_path / "a.npy", np.array(IDS))
    np.save(tmp_path / "b.npy", np.array(MASK))
    fed = ["--input", "input_ids=a.npy", "--input", "attention_mask=b.npy"]
    assert run("bundle", "golden", "m", *fed).code == 0
    built = run("bundle", "build", "m", "--json")
    assert "weights/deep.bin" in built.json()["files"], built.err


def test_init_finds_labels_and_task_in_metadata(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(detector_model())
    assert run("bundle", "init", "m.onnx").code == 0
    assert described(tmp_path / "m")["task"] == "object-detection"
    assert json.loads((tmp_path / "m/labels.json").read_text()) == ["face"]
    assert 'include = ["labels.json"]' in (tmp_path / "m/build.toml").read_text()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--labels", "two.txt"], 4), (["--name", "Acme/X"], 2), (["--version", "1"], 2),
        (["--task", "A B"], 2), (["--inputs", "nowhere"], 4), (["--output", "nothing"], 4),
        (["--layout", "NHWC"], 0),
    ],
)  # fmt: skip
def test_what_can_be_wrong_with_init(
    options: list[str], code: int, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(colour_model())
    (tmp_path / "two.txt").write_text("a\nb\n")
    outcome = run("bundle", "init", "m.onnx", *options)
    assert outcome.code == code, outcome
    assert (tmp_path / "m").exists() is (code == 0)


def test_init_asks_on_a_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(colour_model())
    (tmp_path / "l.txt").write_text("red\ngreen\nblue\n")
    answers = b"Acme!\ncolour\nRGB\npurple\nstretch\nzero-one\nno.txt\nl.txt\n\n"
    made = run("bundle", "init", "m.onnx", "--ask", "--json", stdin=answers)
    assert made.json()["holes"] == [], made.err
    assert "is one of shortest-side, stretch, letterbox" in made.err
    value = described(tmp_path / "m")
    assert (value["name"], value["task"]) == ("local/colour", "image-classification")
    assert "--name can't be 'local/Acme!'" in made.err
    assert value["preprocess"]["color"] == "RGB"
    (tmp_path / "n.onnx").write_bytes(colour_model())
    gone = run("bundle", "init", "n.onnx", "--ask", stdin=b"acme/colour\n")
    assert gone.code == 130
    assert not list(tmp_path.glob("*n")) + list(tmp_path.glob(".n*"))


def test_interrupted_init_leaves_nothing(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "n.onnx").write_bytes(colour_model())
    child = subprocess.Popen(
        [sys.executable, "-m", "edge_agent", "bundle", "init", "n.onnx", "--ask"],
        cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin
    assert child.stderr
    assert b"Bundle name" in child.stderr.read(11)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    assert child.returncode == 130
    assert not list(tmp_path.glob("n")) + list(tmp_path.glob(".n*"))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, and in p/colour a project that lacks nothing."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "colour.onnx").write_bytes(colour_model())
    (folder / "l.txt").write_text("red\ngreen\nblue\n")
    (folder / "photos").mkdir()
    for name in ("coffee.png", "chelsea.png"):
        shutil.copy(ROOT / "photos" / name, folder / "photos")
    ours = {"EDGE_AGENT_CONFIG_DIR": str(folder / "c"), "EDGE_AGENT_STATE_DIR": str(folder / "s")}
    for arguments in (
        ["init", "colour.onnx", "--out", "p/colour", "--name", "acme/colour", "--labels", "l.txt",
         "--color", "RGB", "--resize", "stretch", "--preset", "zero-one", "--inputs", "photos"],
        ["golden", "p/colour", "photos/coffee.png"],
    ):  # fmt: skip
        subprocess.run(
            [sys.executable, "-m", "edge_agent", "bundle", *arguments],
            check=True, capture_output=True, cwd=folder, env=os.environ | ours, timeout=50,
        )  # fmt: skip
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished / "photos", tmp_path / "photos")
    shutil.copytree(finished / "p", tmp_path / "p")
    return tmp_path / "p/colour"


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(one.relative_to(folder)): (
            one.stat().st_mode & 0o7777,
            sha256(one.read_bytes()).hexdigest() if one.is_file() else "",
        )
        for one in [folder, *folder.rglob("*")]
    }


def test_two_builds_are_the_same_bytes(run: Run, acme: None, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "a b" / "colour"
    shutil.copytree(project, other)
    shutil.copytree(tmp_path / "photos", tmp_path / "elsewhere" / "photos")
    for path in other.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1, 1))
    build = ["bundle", "build", "--json", "--key", "acme"]
    one = run(*build, project, "--out", "one/b", "--inputs", "photos")
    start = (
        "import os, sys\nos.umask(0o077)\n"
        "from edge_agent.cli.main import main\n"
        f"sys.argv = ['edge-agent', *{[*build, str(other), '--out', 'two/b']!r}, "
        "'--inputs', 'elsewhere/photos']\nmain()\n"
    )
    two = run(script=start, TZ="Asia/Kathmandu", LC_ALL="C", LANG="C", HOME="/nowhere")
    assert (one.code, two.code) == (0, 0), (one.err, two.err)
    assert one.json()["digest"] == two.json()["digest"]
    assert one.json()["drift_ok"] is True
    assert "reports/drift.json" in one.json()["files"]
    assert tree(tmp_path / "one/b") == tree(tmp_path / "two/b")
    archives = [(tmp_path / place).read_bytes() for place in ("one/b.tar", "two/b.tar")]
    assert archives[0] == archives[1]
    assert str(tmp_path).encode() not in archives[0]
    dated = run(*build, project, "--out", "three/b", "--no-verify", SOURCE_DATE_EPOCH="1700000000")
    document = json.loads((tmp_path / "three/b/sbom.spdx.json").read_text())
    assert document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    assert dated.json()["digest"] != one.json()["digest"]
    assert run(*build, project, "--out", "four/b", SOURCE_DATE_EPOCH="now").code == 2


def test_folder_and_archive_are_the_same_bundle(
    run: Run, acme: None, project: Path, tmp_path: Path
) -> None:
    built = run("bundle", "build", project, "--out", "b", "--no-verify", "--json").json()
    assert built["drift_ok"] is None
    assert run("bundle", "sign", "b", "--key", "acme").code == 0
    assert run("bundle", "sign", "b.tar", "--key", "acme").code == 0
    assert run("bundle", "pack", "b", "again.tar").code == 0
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    assert sorted(built["files"]) == sorted(
        one["name"] for one in run("bundle", "inspect", "./b.tar", "--json").json()["files"]
    )
    run("keys", "generate", "second")
    assert run("bundle", "sign", "b.tar", "--key", "second").code == 0
    assert len(run("bundle", "inspect", "./b.tar", "--json").json()["signatures"]) == 2
    described_now = (tmp_path / "b/model.yaml").read_text()
    assert "pipeline_digest: sha256:" in described_now
    assert not (tmp_path / "b/build.toml").exists()


def test_earlier_bundle_is_replaced_only_by_force(run: Run, project: Path, tmp_path: Path) -> None:
    build = ["bundle", "build", project, "--out", "b", "--no-verify"]
    assert run(*build).code == 0
    before = tree(tmp_path / "b")
    refused = run(*build)
    assert (refused.code, "--force" in refused.err) == (4, True)
    (project / "labels.json").write_text('["rouge", "vert", "bleu"]')
    assert run(*build, "--force").code == 0
    assert tree(tmp_path / "b") != before
    assert not list(tmp_path.glob(".b*"))
    (tmp_path / "b/thesis.txt").write_text("mine")
    refused = run(*build, "--force")
    assert (refused.code, "thesis.txt" in refused.err) == (4, True)
    assert (tmp_path / "b/thesis.txt").exists()
    for place in (project, "..", "/"):
        assert run("bundle", "build", project, "--out", place, "--force").code == 2


def test_drift_beyond_the_contract_is_not_built(run: Run, project: Path, tmp_path: Path) -> None:
    from onnx import load, save

    reference = project / "weights/colour.onnx"
    shutil.copy(reference, project / "reference.onnx")
    recipe = (project / "build.toml").read_text()
    (project / "build.toml").write_text(recipe.replace("weights/colour.onnx", "reference.onnx"))
    model = load(project / "reference.onnx")
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.array([-9, 9, 3], "f4"), "scale")
    )
    save(model, project / "reference.onnx")
    refused = run("bundle", "build", project, "--out", "b")
    assert (refused.code, "drifts" in refused.err) == (6, True), refused
    assert not (tmp_path / "b").exists()
    forced = run("bundle", "build", project, "--out", "b", "--force", "--json")
    assert (forced.code, forced.json()["drift_ok"]) == (0, False), forced.err


def test_killed_build_leaves_no_half_bundle(
    run: Run, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    build = ["bundle", "build", str(project), "--out", "b", "--no-verify", "--force"]
    assert run(*build).code == 0
    old = tree(tmp_path / "b"), (tmp_path / "b.tar").read_bytes()
    (project / "labels.json").write_text('["rouge", "vert", "bleu"]')
    child = subprocess.Popen(
        [sys.executable, "-m", "edge_agent", *build],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".b.*.staging/bundle.tar")) and child.poll() is None:
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGKILL)
    child.wait()
    found = tree(tmp_path / "b"), (tmp_path / "b.tar").read_bytes()
    assert run(*build).code == 0
    new = tree(tmp_path / "b"), (tmp_path / "b.tar").read_bytes()
    assert found[0] in (old[0], new[0])
    assert found[1] in (old[1], new[1])
    assert old[0] != new[0]
    assert not list(tmp_path.glob(".b*"))


def test_golden_is_replaced_with_its_files(run: Run, project: Path, photos: Path) -> None:
    assert (project / "golden/coffee.png").exists()
    assert run("bundle", "golden", project, photos / "chelsea.png", "--tolerance", "0.1").code == 0
    assert [one.name for one in (project / "golden").iterdir()] == ["chelsea.png"]
    assert described(project)["golden"]["top"]["tolerance"] == 0.1
    assert "# From an image file" in (project / "model.yaml").read_text()  # comments stay
    before = (project / "golden/chelsea.png").read_bytes()
    assert run("bundle", "golden", project).code == 0  # answered anew
    assert (project / "golden/chelsea.png").read_bytes() == before
    assert run("bundle", "golden", project, "--input", "x").code == 2
    for value in ("inf", "nan"):
        refused = run("bundle", "golden", project, photos / "chelsea.png", "--tolerance", value)
        assert (refused.code, "--tolerance can't be" in refused.err) == (2, True), refused


def test_a_stale_bill_of_materials_is_not_signed(
    run: Run, acme: None, project: Path, tmp_path: Path
) -> None:
    assert run("bundle", "build", project, "--out", "b", "--no-verify", "--key", "acme").code == 0
    described = tmp_path / "b/model.yaml"
    described.write_text(described.read_text().replace("0.1.0", "0.1.1"))
    stale = run("bundle", "sign", "b", "--key", "acme", "--replace")
    assert stale.code == 4
    assert "the bill of materials is of other files: 'model.yaml' differs" in stale.err
    refused = run("bundle", "sign", project, "--key", "acme")
    assert (refused.code, "is a project" in refused.err) == (4, True)
    (tmp_path / "b/sbom.spdx.json").unlink()
    assert run("bundle", "sign", "b", "--key", "acme", "--replace").code == 0
