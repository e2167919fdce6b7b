"""`edge-agent model quantize`, from a float model to an answer from a signed bundle."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from onnx import helper, load_model_from_string
from PIL import Image

from tests.agent.authoring.quantising.float_models import SIDE, TOKENS, cnn, description, tokens

from .conftest import Run

FLOAT = "weights/shapes-fp32.onnx"
INT8 = "weights/shapes-u8s8.onnx"
FAST = ("model", "quantize", "project", "--inputs", "photos")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of a small CNN, and a folder of twelve photos beside it."""
    return make_project(tmp_path)


def make_project(place: Path, model: Any = None, **changed: Any) -> Path:
    folder = place / "project"
    (folder / "weights").mkdir(parents=True)
    (folder / "model.yaml").write_bytes(b"# by hand\n" + description(**changed))
    (folder / "labels.json").write_text('["a", "b", "c", "d"]')
    (folder / FLOAT).write_bytes((model or cnn()).SerializeToString())
    (place / "photos").mkdir()
    random = np.random.default_rng(2)
    for index in range(12):
        pixels = random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) // (1 + index % 3)
        Image.fromarray(pixels).save(place / f"photos/{index:02}.png")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(one.relative_to(folder)): one.read_bytes()
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    }


def test_from_a_float_model_to_an_answer(run: Run, project: Path) -> None:
    done = run(*FAST)
    assert done.code == 0, done.err
    assert "2 of 2 Conv" in done.out
    assert "weights: 3 per channel, 0 per tensor" in done.out
    assert "calibration: minmax over 12 inputs" in done.out
    assert "calibrated on 12 inputs: a hundred or more" in done.err
    assert "1.9 KiB" in done.out
    assert " times larger" in done.out  # so small a model is mostly its nodes
    assert " times as fast" in done.out or " times as slow" in done.out
    assert "drift of scores: relative L2 0.0" in done.out
    assert f"model.yaml names {INT8} now" in done.out
    assert (project / "model.yaml").read_bytes() == b"# by hand\n" + description(
        engines=[{"engine": "onnx", "file": INT8}]
    )
    assert f'reference = "{FLOAT}"' in (project / "build.toml").read_text()

    assert run("model", "verify", "./project", "--inputs", "photos").code == 0
    assert run("keys", "generate", "acme").code == 0
    assert run("keys", "trust", "acme", "--for", "acme/*").code == 0
    (project / FLOAT).unlink()  # it isn't part of the bundle
    (project / "build.toml").unlink()
    assert run("bundle", "sign", "project", "--key", "acme").code == 0
    answer = run("infer", "photos/01.png", "--model", "./project", "--json").json()
    assert answer["engine"] == "onnx"


def test_the_document(run: Run, project: Path) -> None:
    done = run(
        *FAST, "--types", "s8s8", "--calibration", "percentile", "--percentile", "99.9",
        "--exclude", "head", "--at-most", "5", "--output", "weights/deep/x.onnx", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    made = done.json()
    assert made["schema"] == "edge-agent/model-quantize/v1"
    assert (made["project"], made["file"], made["reference"]) == (
        "project", "weights/deep/x.onnx", f"project/{FLOAT}",
    )  # fmt: skip
    assert made["calibration"] == {"method": "percentile", "percentile": 99.9, "samples": 5}
    assert (made["types"], made["reduce_range"], made["excluded"]) == ("s8s8", False, ["head"])
    assert made["size_bytes"]["int8"] == (project / "weights/deep/x.onnx").stat().st_size
    assert made["size_bytes"]["float"] == (project / FLOAT).stat().st_size
    assert {"type": "Gemm", "quantised": 0, "total": 1} in made["operators"]
    assert made["weights"] == {"per_channel": 2, "per_tensor": 0}
    assert made["latency_ms"]["float"] > 0 < made["latency_ms"]["int8"]
    assert (made["drift"]["ok"], made["forced"], made["golden_problem"]) == (True, False, None)


def test_again_from_the_reference_of_build_toml(run: Run, project: Path) -> None:
    with (project / "build.toml").open("w") as recipe:
        recipe.write("inputs = '../photos'\n")
    assert run("model", "quantize", "project").code == 0
    first = contents(project)
    assert run("model", "quantize", "project").code == 0
    assert contents(project) == first


def test_the_same_bytes_everywhere(run: Run, tmp_path: Path) -> None:
    made = []
    for place, seed in (("one", "1"), ("somewhere/else", "2")):
        folder = make_project(tmp_path / place)
        inputs = tmp_path / place / "photos"
        done = run(
            "model", "quantize", folder, "--inputs", inputs, "--calibration", "entropy",
            PYTHONHASHSEED=seed, EDGE_AGENT_THREADS=seed,
        )  # fmt: skip
        assert done.code == 0, done.err
        made.append(contents(folder))
    assert made[0] == made[1]


def test_weights_with_one_scale_are_refused_with_figures(run: Run, tmp_path: Path) -> None:
    project = make_project(tmp_path, cnn(spread=True))
    before = contents(project)
    refused = run(*FAST, "--per-tensor", "--json")
    assert refused.code == 6
    assert "the per-tensor INT8 model isn't written" in refused.err
    assert "relative_l2 0." in refused.err
    assert "is above 0.35" in refused.err
    assert "hint: leave out --per-tensor" in refused.err
    document = refused.json()
    assert (document["written"], document["forced"]) == (False, False)
    assert document["drift"]["breaches"][0]["measure"] == "relative_l2"
    assert contents(project) == before
    assert run(*FAST).code == 0

    forced = run(*FAST, "--per-tensor", "--force", "--json")
    assert forced.code == 0
    assert "written because of --force, although onnx scores: relative_l2" in forced.err
    assert (forced.json()["written"], forced.json()["forced"]) == (True, True)
    assert (project / "weights/shapes-u8s8-pt.onnx").exists()


def test_the_contract_of_the_project_decides(run: Run, tmp_path: Path) -> None:
    make_project(tmp_path, contract={"drift": {"max_relative_l2": 0.000001}})
    refused = run(*FAST)
    assert refused.code == 6
    assert "drift of scores: relative L2 0.0" in refused.out
    assert f"{INT8}, not written" in refused.out
    assert "model.yaml names" not in refused.out
    assert "is above 1e-06" in refused.err
    assert "hint: try --calibration percentile; or write it with --force" in refused.err
    assert "errors add up along the graph" in refused.err
    again = run(*FAST, "--calibration", "percentile")
    assert "hint: try another --percentile; or write it with --force" in again.err


def test_a_golden_answer_that_moved_is_told(run: Run, tmp_path: Path) -> None:
    golden = {"image": "golden/0.png", "top": {"index": 0, "score": 0.123, "tolerance": 1e-6}}
    project = make_project(tmp_path, golden=golden)
    (project / "golden").mkdir()
    (project / "golden/0.png").write_bytes((tmp_path / "photos/00.png").read_bytes())
    done = run(*FAST)
    assert done.code == 0
    assert "the golden input is answered differently now" in done.err
    assert "edge-agent bundle golden project" in done.err


def test_images_in_the_layout_of_the_file(run: Run, tmp_path: Path) -> None:
    model = cnn(batch="N")
    model.graph.node.insert(
        0, helper.make_node("Transpose", ["pixels"], ["image"], perm=[0, 3, 1, 2], name="turn")
    )
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("pixels", 1, ["N", SIDE, SIDE, 3]))
    entry = {"engine": "onnx", "file": FLOAT, "layout": "NHWC", "inputs": {"image": "pixels"}}
    project = make_project(tmp_path, model, engines=[entry])
    done = run(*FAST)
    assert done.code == 0, done.err
    assert (project / "model.yaml").read_bytes() == b"# by hand\n" + description(
        engines=[entry | {"file": INT8}]
    )


def test_a_model_of_tokens(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "samples").mkdir(parents=True)
    (folder / "model.yaml").write_text(yaml.safe_dump(TOKENS, sort_keys=False))
    (folder / "tokens.onnx").write_bytes(tokens().SerializeToString())
    (folder / "build.toml").write_text('inputs = "samples"\n')
    random = np.random.default_rng(1)
    for index, words in enumerate((3, 7, 5, 9)):
        np.savez(
            folder / f"samples/{index}.npz",
            ids=random.integers(0, 32, (1, words)),
            mask=np.ones((1, words), np.float32),
        )
    done = run("model", "quantize", "project", "--json")
    assert done.code == 0, done.err
    assert done.json()["file"] == "weights/tokens-u8s8.onnx"
    assert "input_ids" in (folder / "model.yaml").read_text()
    (folder / "samples/4.npz").write_bytes(b"PK nonsense")
    assert run("model", "quantize", "project").code == 4


def quantised(project: Path) -> None:
    model = cnn()
    model.graph.node.append(helper.make_node("QuantizeLinear", ["scores"], ["more"]))
    (project / FLOAT).write_bytes(model.SerializeToString())


def cut(project: Path) -> None:
    (project / FLOAT).write_bytes((project / FLOAT).read_bytes()[:500])


def renamed(project: Path) -> None:
    model = load_model_from_string((project / FLOAT).read_bytes())
    model.graph.input[0].name = "other"
    model.graph.node[0].input[0] = "other"
    model.graph.input.append(helper.make_tensor_value_info("more", 1, [1]))
    (project / FLOAT).write_bytes(model.SerializeToString())


def bad_photo(project: Path) -> None:
    (project.parent / "photos/05.png").write_bytes(b"\x89PNG\r\n\x1a\n")


def no_photos(project: Path) -> None:
    for one in (project.parent / "photos").iterdir():
        one.unlink()


def holes(project: Path) -> None:
    text = (project / "model.yaml").read_text().replace("acme/shapes", "TODO")
    (project / "model.yaml").write_text(text)


@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        (quantised, 4, "is quantised already"),
        (cut, 4, "ONNX"),
        (renamed, 4, "doesn't fit model.yaml"),
        (bad_photo, 4, "05.png"),
        (no_photos, 4, "has no input that this model takes"),
        (holes, 4, "model.yaml"),
        (lambda project: (project / FLOAT).unlink(), 4, "can't be read"),
        (lambda project: (project / "labels.json").unlink(), 4, "labels.json"),
        (lambda project: (project / "build.toml").write_text("reference = 1"), 2, "build.toml"),
    ],
)
def test_what_cannot_be_used_changes_nothing(
    run: Run, project: Path, spoil: Callable[[Path], object], code: int, message: str
) -> None:
    spoil(project)
    before = contents(project)
    refused = run(*FAST)
    assert (refused.code, message in refused.err) == (code, True), refused.err
    assert contents(project) == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere",), 5, "is no project"),
        (("project",), 2, "there are no inputs to calibrate with"),
        (("project", "--inputs", "nowhere"), 4, "nowhere: can't be read"),
        (("project", "--inputs", "photos", "--exclude", "hed"), 2, "has no node 'hed'"),
        (("project", "--inputs", "photos", "--output", "../x.onnx"), 2, "the new file can't be"),
        (("project", "--inputs", "photos", "--output", FLOAT), 2, "the new file can't be"),
        (("project", "--inputs", "photos", "--percentile", "99"), 2, "goes with --calibration"),
        (("project", "--inputs", "photos", "--reference", "photos/01.png"), 4, "an .onnx or"),
        (("project", "--inputs", "photos", "--reference", "x.tflite"), 4, "is no .onnx file, and"),
        (("project", "--inputs", "photos", "--at-most", "0"), 2, "--at-most"),
        (("project", "--inputs", "photos", "--output", "labels.json/x.onnx"), 1, "labels.json"),
    ],
)
def test_wrong_options(
    run: Run, project: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = contents(project)
    refused = run("model", "quantize", *arguments)
    assert (refused.code, message in refused.err) == (code, True), refused.err
    assert contents(project) == before


def test_a_file_in_the_place_of_the_folder(run: Run, project: Path) -> None:
    """It is known before minutes go into calibration."""
    (project / FLOAT).rename(project / "shapes-fp32.onnx")
    (project / "weights").rmdir()
    (project / "weights").write_bytes(b"")
    before = contents(project)
    refused = run(*FAST, "--reference", "project/shapes-fp32.onnx")
    assert (refused.code, "project/weights" in refused.err) == (1, True), refused.err
    assert "calibrating" not in refused.err
    assert contents(project) == before


def test_nothing_is_written_through_a_link(run: Run, project: Path, tmp_path: Path) -> None:
    """It is known before minutes go into calibration."""
    (project / "weights").rename(tmp_path / "outside")
    (project / "weights").symlink_to("../outside")
    before = contents(tmp_path)
    refused = run(*FAST, "--force", "--reference", "outside/shapes-fp32.onnx")
    assert (refused.code, "project/weights: is a symbolic link" in refused.err) == (4, True)
    assert "calibrat" not in refused.err
    assert contents(tmp_path) == before


def test_another_result_has_another_name(run: Run, project: Path) -> None:
    assert run(*FAST).code == 0
    first = contents(project)
    again = run(*FAST, "--reduce-range")
    assert again.code == 0, again.err
    second = "weights/shapes-u8s8-2.onnx"
    assert f"model.yaml names {second} now" in again.out
    assert f"{INT8}, which it named before, is still there" in again.out
    after = contents(project)
    assert after[INT8] == first[INT8] != after[second]
    assert f"file: {second}" in (project / "model.yaml").read_text()


def test_a_file_at_output_stays(run: Run, project: Path) -> None:
    (project / "weights/mine.onnx").write_bytes(b"mine")
    before = contents(project)
    refused = run(*FAST, "--output", "weights/mine.onnx", "--force")
    assert (refused.code, "is there already" in refused.err) == (2, True), refused.err
    assert "hint: remove it, or choose another --output" in refused.err
    assert contents(project) == before


def test_an_interrupt_leaves_nothing_behind(
    project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "tmp").mkdir()
    for index in range(12, 400):
        (tmp_path / f"photos/{index}.png").write_bytes((tmp_path / "photos/00.png").read_bytes())
    before = contents(project)
    with subprocess.Popen(
        [sys.executable, "-m", "edge_agent", *FAST, "--at-most", "400"],
        cwd=tmp_path,
        env=environment | {"TMPDIR": str(tmp_path / "tmp")},
        stderr=subprocess.PIPE,
    ) as process:
        end = time.monotonic() + 30
        while not list((tmp_path / "tmp").rglob("augmented.onnx")) and time.monotonic() < end:
            time.sleep(0.005)
        process.send_signal(2)
        assert process.wait(30) == 130
    assert contents(project) == before
    assert list((tmp_path / "tmp").iterdir()) == []
