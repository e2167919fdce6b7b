"""The drift gate at the command line: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from onnx import TensorProto, helper, load_model_from_string
from PIL import Image

from .conftest import MODEL_YAML, ROOT, Publisher, Run, colour_model

DEMO = ROOT / "edge_agent" / "demo" / "bundle"
TFLITE = DEMO / "weights" / "efficientnet-lite0-int8.tflite"
COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "grey": (90, 110, 100), "red": (255, 0, 0)}


def put_colours(folder: Path) -> None:
    folder.mkdir()
    for name, colour in COLOURS.items():
        image = BytesIO()
        Image.new("RGB", (8, 8), colour).save(image, "PNG")
        (folder / f"{name}.png").write_bytes(image.getvalue())


def put_reference(place: Path, change: Callable[[float], float] = float) -> None:
    """The colour model with its factor changed."""
    model = load_model_from_string(colour_model())
    model.graph.initializer[0].CopyFrom(
        helper.make_tensor("scale", TensorProto.FLOAT, [1], [change(10.0)])
    )
    place.write_bytes(model.SerializeToString())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An unsigned project whose build.toml names reference and inputs."""
    made = Publisher(tmp_path / "project", tmp_path / "config")
    made.write()
    put_colours(made.bundle / "samples")
    put_reference(made.bundle / "fp32.onnx")
    made.put("build.toml", b'reference = "fp32.onnx"\ninputs = "samples"\n')
    return made.bundle


def test_a_project_that_keeps_its_contract(run: Run, project: Path) -> None:
    done = run("model", "verify", "./project")
    assert done.code == 0, done.err
    assert "./project is an unsigned project" in done.err
    assert "acme/colour 1.2.3 against FP32, 4 inputs" in done.out
    assert "Worst inputs" in done.out
    assert "onnx: the golden answer is right" in done.out
    assert "drift: the default thresholds hold on this device (onnx)" in done.out
    assert "contract:" not in done.out


def test_a_reference_that_the_answers_are_far_from(run: Run, project: Path, tmp_path: Path) -> None:
    """Answers are half of the reference's: |a - r| / |r| = 0.5, the best class stays."""
    put_reference(project / "fp32.onnx", lambda factor: 2 * factor)
    done = run("model", "verify", "./project", "--report", "r.json", "--picture", "p.svg")
    assert done.code == 6
    assert "the default thresholds are BROKEN on this device: onnx scores: relative_l2" in done.out
    assert "acme/colour 1.2.3 drifts: onnx scores: relative_l2 0.5 is above 0.35" in done.err
    read = json.loads((tmp_path / "r.json").read_text())
    assert read["breaches"] == [
        {"engine": "onnx", "output": "scores", "measure": "relative_l2", "value": 0.5,
         "threshold": 0.35}
    ]  # fmt: skip
    assert read["engines"][0]["outputs"]["scores"]["top1"] == 1.0
    assert ElementTree.fromstring((tmp_path / "p.svg").read_bytes()).tag.endswith("svg")


def test_thresholds_are_those_of_the_contract(run: Run, project: Path) -> None:
    put_reference(project / "fp32.onnx", lambda factor: 2 * factor)
    (project / "model.yaml").write_text(
        MODEL_YAML + "contract:\n  drift: {max_relative_l2: 0.5, max_error: 10}\n"
    )
    done = run("model", "verify", "./project")
    assert done.code == 0
    assert "contract: drift holds on this device (onnx)" in done.out


def test_a_wrong_golden_answer_is_no_matter_of_thresholds(run: Run, project: Path) -> None:
    text = (project / "model.yaml").read_text()
    (project / "model.yaml").write_text(text.replace("{index: 1,", "{index: 0,"))
    done = run("model", "verify", "./project")
    assert done.code == 6
    assert "acme/colour 1.2.3: onnx answers the golden input wrongly: class 1" in done.err
    assert "hint: if the new answer is right, keep it: edge-agent bundle golden" in done.err
    assert "contract.drift" not in done.err


def test_json_is_one_document_even_where_the_contract_is_broken(run: Run, project: Path) -> None:
    put_reference(project / "fp32.onnx", lambda factor: -factor)
    done = run("model", "verify", "./project", "--json")
    assert done.code == 6
    read = done.json()
    assert (read["schema"], read["ok"]) == ("edge-agent/drift/v1", False)
    assert {one["measure"] for one in read["breaches"]} == {"relative_l2", "cosine", "top1"}


def test_the_report_is_the_same_every_time_and_everywhere(
    run: Run, project: Path, tmp_path: Path
) -> None:
    shutil.copytree(project, tmp_path / "elsewhere" / "copy")
    for subject, name in (("./project", "1"), ("./elsewhere/copy", "2")):
        more = ("--report", f"{name}.json", "--picture", f"{name}.svg", "--per-layer")
        done = run("model", "verify", subject, *more)
        assert done.code == 0, done.err
    for kind in ("json", "svg"):
        first, second = ((tmp_path / f"{n}.{kind}").read_bytes() for n in "12")
        assert first == second
        assert str(tmp_path).encode() not in first


def test_layers_are_shown(run: Run, project: Path) -> None:
    done = run("model", "verify", "./project", "--per-layer")
    assert "Worst of 3 layers, 4 inputs" in done.out
    assert "added" in done.out
    assert "GlobalAveragePool" in done.out


def test_layers_need_a_reference(run: Run, project: Path) -> None:
    (project / "build.toml").write_text('inputs = "samples"\n')
    done = run("model", "verify", "./project", "--per-layer")
    assert done.code == 2
    assert "without the FP32 reference" in done.err


def test_a_tflite_file_as_the_reference(run: Run, project: Path) -> None:
    """Only a quantised one is at hand: that it is one shows that it was read by LiteRT."""
    shutil.copyfile(TFLITE, project / "int8.tflite")
    (project / "build.toml").write_text('reference = "int8.tflite"\ninputs = "samples"\n')
    done = run("model", "verify", "./project")
    assert (done.code, "the FP32 reference: is quantised itself: " in done.err) == (4, True)
    layers = run("model", "verify", "./project", "--per-layer")
    assert (layers.code, "those of an ONNX file only" in layers.err) == (2, True)
    assert "hint: name it: --reference FP32.onnx" in layers.err


def test_at_most_so_many_inputs(run: Run, project: Path) -> None:
    read = run("model", "verify", "./project", "--at-most", "2", "--json").json()
    assert read["inputs"]["count"] == 2


def test_both_engines_of_the_demo(run: Run, tmp_path: Path) -> None:
    """Its ONNX file stands in for the reference: that engine has no error, the other has one."""
    shutil.copytree(DEMO / "weights", tmp_path / "weights")
    done = run(
        "model", "verify", "demo/efficientnet-lite0", "--inputs", ROOT / "photos", "--json",
        "--reference", "weights/efficientnet-lite0-u8s8.onnx",
    )  # fmt: skip
    read = done.json()
    onnx, tflite = read["engines"]
    assert onnx["outputs"]["logits"]["relative_l2"] == 0.0
    assert 0 < tflite["outputs"]["logits"]["relative_l2"] < 0.2
    (pair,) = read["consistency"]
    assert pair["engines"] == ["onnx", "tflite"]
    assert 0 < pair["lsb"] <= 8
    assert pair["step"] == pytest.approx(0.074, abs=0.001)
    assert (done.code, read["ok"]) == (0, True), read["breaches"]


def test_a_bundle_needs_inputs_and_trust(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    without = run("model", "verify", "./bundle")
    assert without.code == 2
    assert "hint: say --inputs DIR" in without.err
    put_colours(tmp_path / "samples")
    alone = run("model", "verify", "./bundle", "--inputs", "samples")
    assert alone.code == 0, alone.err
    assert "drift: whether it holds on this device is not known" in alone.out
    assert "hold on this device" not in alone.out
    assert run("model", "verify", "./bundle", "--inputs", "samples", "--json").json()["ok"] is None
    (publisher.bundle / "labels.json").write_text('["a", "b", "c"]')
    assert run("model", "verify", "./bundle", "--inputs", "samples").code == 3


def test_an_unreadable_input_is_named_and_nothing_is_written(
    run: Run, project: Path, tmp_path: Path
) -> None:
    (project / "samples" / "broken.png").write_bytes(b"no image")
    done = run("model", "verify", "./project", "--report", "r.json")
    assert done.code == 4
    assert "broken.png" in done.err
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--inputs", "nowhere"], 4, "nowhere"),
        (["--reference", "none.onnx"], 4, "none.onnx"),
        (["--reference", "project/labels.json"], 4, "must be an .onnx or a .tflite file"),
        (["--report", "no/such/r.json"], 2, "no/such/r.json"),
    ],
)
def test_what_cannot_be_used(
    run: Run, project: Path, options: list[str], code: int, told: str
) -> None:
    done = run("model", "verify", "./project", *options)
    assert done.code == code
    assert told in done.err


def test_a_missing_onnx_package(run: Run, project: Path) -> None:
    script = "import sys; sys.modules['onnx'] = None; from edge_agent.cli.main import main; main()"
    done = run("model", "verify", "./project", "--per-layer", script=script)
    assert done.code == 5
    assert "hint: pip install onnx" in done.err
