"""`bundle lint`: every finding one line, and of every broken model one clear one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edge_agent.authoring.lint.findings import CODES
from tests.agent.marks import needs_external_data

from .broken import BROKEN, changed, huge
from .conftest import MODEL_YAML, ROOT, Publisher, Run, colour_model

LINE = re.compile(r"([^ :]+)(:\d+)?: (error|warning) ([a-z-]+) (.+)")
HEAD = MODEL_YAML.partition("golden:")[0] + "license: Apache-2.0\ncontract: {latency_ms: 50}\n"


def project(folder: Path, described: str = HEAD, model: bytes | None = None) -> Path:
    (folder / "weights").mkdir(parents=True)
    (folder / "model.yaml").write_text(described)
    (folder / "labels.json").write_text('["red", "green", "blue"]')
    if model is not None:
        (folder / "weights/model.onnx").write_bytes(model)
    return folder


def codes(out: str) -> list[str]:
    found = [LINE.fullmatch(line) for line in out.splitlines()]
    assert all(found), out
    return [match[4] for match in found if match]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_model_is_one_finding(name: str, run: Run, tmp_path: Path) -> None:
    broken = BROKEN[name]
    engine = broken.file.rpartition(".")[2]
    text = HEAD.replace("engine: onnx", f"engine: {engine}").replace("model.onnx", broken.file)
    folder = project(tmp_path / "p", text)
    broken.put(folder / "weights")
    outcome = run("bundle", "lint", folder)
    assert outcome.code == 4
    errors = [line for line in outcome.out.splitlines() if ": error " in line]
    assert len(errors) == 1, outcome.out
    assert f" {broken.code} " in errors[0]
    assert broken.said in errors[0]
    assert outcome.err == ""


@pytest.mark.parametrize("name", BROKEN)
def test_init_says_one_line_of_a_broken_model(name: str, run: Run, tmp_path: Path) -> None:
    broken = BROKEN[name]
    (tmp_path / "m").mkdir()
    broken.put(tmp_path / "m")
    outcome = run("bundle", "init", tmp_path / "m" / broken.file, "--out", "p")
    assert outcome.code == 4, outcome
    said = [line for line in outcome.err.splitlines() if not line.startswith("  hint: ")]
    assert len(said) == 1, outcome.err
    assert outcome.out == ""
    assert not (tmp_path / "p").exists()
    assert not list(tmp_path.glob(".p*"))


@pytest.mark.parametrize("name", BROKEN)
def test_build_says_one_line_of_a_broken_model(name: str, run: Run, tmp_path: Path) -> None:
    broken = BROKEN[name]
    engine = broken.file.rpartition(".")[2]
    text = HEAD.replace("engine: onnx", f"engine: {engine}").replace("model.onnx", broken.file)
    folder = project(tmp_path / "p", text)
    broken.put(folder / "weights")
    outcome = run("bundle", "build", folder, "--out", "b")
    assert outcome.code == 4, outcome
    said = [line for line in outcome.err.splitlines() if not line.startswith("  hint: ")]
    assert len(said) == 1, outcome.err
    assert broken.code in said[0]
    assert not list(tmp_path.glob("*b*.tar")) + list(tmp_path.glob(".b*"))


def test_sound_project_is_clean(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    outcome = run("bundle", "lint", folder)
    assert (outcome.code, codes(outcome.out)) == (0, ["golden-missing"])
    assert run("bundle", "lint", folder, "--strict").code == 4
    document = run("bundle", "lint", folder, "--json").json()
    assert document["ok"] is True
    assert document["findings"][0]["level"] == "warning"


def test_bundles_folder_is_clean(run: Run, publisher: Publisher) -> None:
    outcome = run("bundle", "lint", publisher.bundle)
    assert (outcome.code, codes(outcome.out)) == (0, ["contract-missing", "license-missing"])
    shipped = run("bundle", "lint", ROOT / "edge_agent" / "demo" / "bundle")
    assert shipped.code == 0, shipped.out


def test_every_fault_of_a_description_is_told_at_once(run: Run, tmp_path: Path) -> None:
    text = (
        HEAD.replace("version: 1.2.3", "version: 1")
        .replace("color: RGB", "color: ???")
        .replace("layout: NCHW", "layout: NCWH")
        .replace("license: Apache-2.0", "colour: 1")
    )
    outcome = run("bundle", "lint", project(tmp_path / "p", text, colour_model()))
    assert outcome.code == 4
    assert sorted(codes(outcome.out)) == ["description-invalid"] * 3 + ["hole"]
    lines = sorted(int(one) for one in re.findall(r"^model.yaml:(\d+)", outcome.out, re.MULTILINE))
    assert lines == [3, 6, 13, 17]


def test_every_broken_rule_is_told_at_once(run: Run, tmp_path: Path) -> None:
    text = (
        HEAD.replace("size: [8, 8]", "size: [9, 9]")
        .replace("output: scores", "output: score")
        .replace("model.onnx", "model.tflite")
    )
    outcome = run("bundle", "lint", project(tmp_path / "p", text, colour_model()))
    assert codes(outcome.out).count("description-invalid") == 3
    assert "makes 9x9 images" in outcome.out


def test_tensors_that_differ_are_all_told(run: Run, tmp_path: Path) -> None:
    text = HEAD.replace(
        "name: scores, dtype: float32, shape: [1, 3]", "name: scores, dtype: int64, shape: [1, 4]"
    )
    outcome = run("bundle", "lint", project(tmp_path / "p", text, colour_model()))
    assert codes(outcome.out) == [
        "golden-missing", "labels-count", "tensor-shape", "tensor-dtype",
    ]  # fmt: skip
    renamed = HEAD.replace("name: image", "name: picture").replace("input: image", "input: picture")
    outcome = run("bundle", "lint", project(tmp_path / "q", renamed, colour_model()))
    assert codes(outcome.out) == ["golden-missing", "tensor-missing", "tensor-extra"]


def test_files(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    (folder / "notes.txt").write_text("x")
    (folder / "labels.json").unlink()
    (folder / "labels.json").symlink_to("notes.txt")
    (folder / "build.toml").write_text('reference = "no.onnx"\ninclude = ["../x", "LICENSE"]\n')
    outcome = run("bundle", "lint", folder)
    assert outcome.code == 4
    found = codes(outcome.out)
    for code in ("file-link", "recipe-missing", "file-name", "file-missing", "file-unlisted"):
        assert code in found, outcome.out
    told = [one for one in outcome.out.splitlines() if one.startswith("notes.txt: ")]
    assert len(told) == 1
    assert told[0].startswith("notes.txt: warning file-unlisted ")
    assert told[0].endswith(" — name it under include in build.toml, or remove it")


def test_what_the_recipe_names_is_no_stray(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    (folder / "fp32.onnx").write_bytes(colour_model("fp32.bin"))
    (folder / "fp32.bin").write_bytes(bytes(4))
    (folder / "photos").mkdir()
    (folder / "photos/x.png").write_bytes(b"x")
    (folder / ".gitignore").write_text("x")
    (folder / "build.toml").write_text('reference = "./fp32.onnx"\ninputs = "photos/"\n')
    assert codes(run("bundle", "lint", folder).out) == ["golden-missing"]


@pytest.mark.parametrize(
    ("described", "labels", "code"),
    [
        (HEAD, '["red", "green"]', "labels-count"),
        (HEAD, "red", "labels-invalid"),
        (HEAD.replace("Apache-2.0", "do what you like"), '["r", "g", "b"]', "license-syntax"),
        (HEAD.replace("name: acme/colour", "name: acme/colour-int8"), '["r", "g", "b"]',
         "engine-precision"),
        (HEAD.replace("\nname: acme", "\nname: Acme"), '["r", "g", "b"]', "description-invalid"),
        ("- 1\n", '["r", "g", "b"]', "description-invalid"),
        ("a: &b 1\n", '["r", "g", "b"]', "description-invalid"),
    ],
)  # fmt: skip
def test_what_else_is_found(
    described: str, labels: str, code: str, run: Run, tmp_path: Path
) -> None:
    folder = project(tmp_path / "p", described, colour_model())
    (folder / "labels.json").write_text(labels)
    assert code in codes(run("bundle", "lint", folder).out)


def test_golden_answers(run: Run, publisher: Publisher) -> None:
    wrong = MODEL_YAML.replace("index: 1", "index: 2")
    publisher.put("model.yaml", wrong.encode())
    outcome = run("bundle", "lint", publisher.bundle)
    assert (outcome.code, "answers the golden input wrongly: " in outcome.out) == (4, True)
    publisher.put("model.yaml", MODEL_YAML.encode())
    publisher.put("golden/green.png", b"no image")
    outcome = run("bundle", "lint", publisher.bundle)
    assert (outcome.code, "golden-fails" in outcome.out) == (4, True)


def test_model_that_takes_more_memory_than_there_is(run: Run, publisher: Publisher) -> None:
    publisher.put("weights/model.onnx", changed(huge)())
    outcome = run("bundle", "lint", publisher.bundle)
    # Some versions of ONNX Runtime compute it already when they load it.
    found = {"golden-fails", "engine-refuses"} & {*codes(outcome.out)}
    assert (outcome.code, bool(found)) == (4, True), outcome.out


def test_per_tensor_weights_are_told(run: Run, tmp_path: Path) -> None:
    from onnx import helper, load_model_from_string, numpy_helper

    model = load_model_from_string(colour_model())
    model.graph.node[2].CopyFrom(helper.make_node("MatMul", ["flat", "w"], ["scores"]))
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["q", "s"], ["w"]))
    model.graph.initializer.append(numpy_helper.from_array(np.eye(3, dtype="int8"), "q"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.1, "float32"), "s"))
    folder = project(tmp_path / "p", model=model.SerializeToString())
    assert "weights-per-tensor" in codes(run("bundle", "lint", folder).out)


def test_missing_project(run: Run, tmp_path: Path) -> None:
    assert run("bundle", "lint", "nowhere").code == 5
    (tmp_path / "empty").mkdir()
    outcome = run("bundle", "lint", "empty")
    assert (outcome.code, codes(outcome.out)) == (4, ["file-missing"])


def test_codes_are_documented() -> None:
    page = (ROOT / "docs/BUNDLES.md").read_text()
    for code, level in CODES.items():
        assert f"| `{code}` | {level} |" in page


def test_modules_beside_a_model_are_not_imported(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    for place in (tmp_path, folder, folder / "weights"):
        (place / "onnx.py").write_text("raise SystemExit(9)")
        (place / "msgspec.py").write_text("raise SystemExit(9)")
    shutil.copy(folder / "weights/model.onnx", tmp_path / "m.onnx")
    outcome = run("bundle", "lint", "--json", folder, PYTHONSAFEPATH="1")
    assert json.loads(outcome.out)["ok"] is True


def test_photos_that_are_not_here_fail_only_a_build_that_compares(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    (folder / "build.toml").write_text(f'reference = "{"x" * 300}.onnx"\ninputs = "../photos"\n')
    outcome = run("bundle", "lint", folder)
    assert (outcome.code, codes(outcome.out)[:2]) == (0, ["recipe-missing"] * 2)
    refused = run("bundle", "build", folder, "--out", "b")
    assert (refused.code, "--no-verify" in refused.err) == (4, True)
    assert run("bundle", "build", folder, "--out", "b", "--no-verify").code == 0
    (tmp_path / "here").mkdir()
    shutil.copy(ROOT / "photos/coffee.png", tmp_path / "here")
    given = ["--inputs", "here", "--reference", folder / "weights/model.onnx"]
    assert run("bundle", "build", folder, "--out", "c", *given).code == 0


def test_a_broken_recipe_is_told_once(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    (folder / "build.toml").write_text('reference = "a\\u0000b"\n')
    outcome = run("bundle", "lint", folder)
    assert codes(outcome.out) == ["recipe-invalid", "golden-missing"]
    assert run("bundle", "build", folder).code == 4


def test_folders_without_end_are_one_finding(run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / "p", model=colour_model())
    place = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=place)
        inner = os.open("a", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    found = run("bundle", "lint", folder).out
    subprocess.run(["rm", "-r", folder / "a"], check=True)  # pytest couldn't
    assert codes(found) == ["golden-missing", "file-unlisted"]


@needs_external_data
@pytest.mark.parametrize("name", [b"p\xff", "p\u0301 \u202e".encode()])
def test_a_folder_may_have_any_name(name: bytes, run: Run, tmp_path: Path) -> None:
    folder = project(tmp_path / os.fsdecode(name), model=colour_model("w.bin"))
    (folder / "weights/w.bin").write_bytes(np.ones(1, "f4").tobytes())
    outcome = run("bundle", "lint", folder)
    assert codes(outcome.out) == ["golden-missing"]
    assert run("bundle", "build", folder, "--json").code == 0
    model = folder / os.fsdecode(b"m\xff.onnx")
    model.write_bytes(colour_model())
    refused = run("bundle", "init", model)
    assert (refused.code, "it is not UTF-8" in refused.err) == (4, True)


def test_an_archive_is_no_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b.tar").write_bytes(b"x")
    outcome = run("bundle", "lint", "b.tar")
    assert (outcome.code, "lint the project, or the bundle's folder" in outcome.err) == (4, True)


def test_a_contract_has_what_fits_the_model(run: Run, tmp_path: Path) -> None:
    text = HEAD.partition("contract")[0]
    folder = project(tmp_path / "p", text, colour_model())
    assert "memory_mib, min_confidence, leave_device, drift" in run("bundle", "lint", folder).out
    raw = re.sub("(?m)^postprocess.*$", "postprocess: {kind: raw}", text)
    told = run("bundle", "lint", project(tmp_path / "q", raw, colour_model())).out
    assert "no contract: latency_ms, memory_mib, leave_device, drift" in told


@pytest.mark.parametrize("limit", ["RLIMIT_AS, (4096000000,) * 2", "RLIMIT_CPU, (100, 100)"])
def test_hard_limits_of_the_shell(limit: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(colour_model())
    for words in (["init", "m.onnx"], ["lint", "m"]):
        script = (
            f"import resource, sys; resource.setrlimit(resource.{limit})\n"
            f"sys.argv = ['edge-agent', 'bundle', *{words!r}]\n"
            "from edge_agent.cli.main import main; main()"
        )
        outcome = run(script=script)
        assert outcome.code == (0 if words[0] == "init" else 4), outcome.err
        assert "memory" not in outcome.err


def test_a_model_is_given_a_share_of_the_memory(run: Run, publisher: Publisher) -> None:
    """Answering takes 12 GB, which many machines have."""
    publisher.put("weights/model.onnx", changed(partial(huge, elements=3_000_000_000))())
    outcome = run("bundle", "lint", publisher.bundle)
    assert (outcome.code, outcome.out.count(": error ")) == (4, 1), outcome.out
    # Older engines fold what is constant when they load it.
    assert "golden-fails" in outcome.out or "engine-refuses" in outcome.out
