"""The main job, as a user calls it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import NAME, Publisher, Run

CATS = {"tiger cat", "Egyptian cat", "tabby"}


@pytest.mark.parametrize("engine", ["auto", "onnx", "tflite"])
def test_coffee_is_espresso(engine: str, run: Run, photos: Path) -> None:
    outcome = run("infer", photos / "coffee.png", "--engine", engine, "--json")
    answer = outcome.json()
    best = answer["labels"][0]
    assert (outcome.code, best["label"], best["index"]) == (0, "espresso", 967)
    assert best["score"] >= 0.9
    assert answer["engine"] == engine or (engine == "auto" and answer["engine"] != engine)


def test_chelsea_is_a_cat(run: Run, photos: Path) -> None:
    answer = run("infer", photos / "chelsea.png", "--json", "--engine", "onnx").json()
    assert answer["labels"][0]["label"] in CATS


def test_answer_as_text(run: Run, photos: Path) -> None:
    outcome = run("infer", photos / "coffee.png", "--top-k", "2", "--engine", "onnx")
    title, first, *others = outcome.out.splitlines()
    assert "coffee.png  (demo/efficientnet-lite0 1.0.0, onnx, " in title
    assert first.split() == ["espresso", "0.949"]
    assert len(others) == 1


def test_shape_of_the_json_answer(run: Run, photos: Path) -> None:
    answer = run("infer", photos / "coffee.png", "--json", "--engine", "onnx").json()
    assert answer["schema"] == "edge-agent/infer/v1"
    assert set(answer) == {
        "schema", "input", "model", "engine", "labels", "outputs", "confident", "timings_ms",
        "cached", "answered_by",
    }  # fmt: skip
    assert set(answer["model"]) == {"name", "version", "digest"}
    assert set(answer["timings_ms"]) == {"prepare", "infer", "answer"}
    assert answer["outputs"] == []
    assert answer["confident"] is True
    assert answer["cached"] is False
    assert answer["answered_by"] == "here"
    assert len(answer["labels"]) == 5


def test_auto_measures_once(run: Run, photos: Path) -> None:
    first = run("infer", photos / "coffee.png")
    again = run("infer", photos / "coffee.png")
    assert "trying demo/efficientnet-lite0 on onnx and tflite" in first.err
    assert again.err == ""
    assert first.out.split(",")[1] == again.out.split(",")[1]


def test_auto_answers_where_nothing_can_be_kept(run: Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    outcome = run("infer", photos / "coffee.png")
    assert outcome.code == 0
    assert "espresso" in outcome.out
    assert "can't be kept" in outcome.err


def test_files_globs_folders_and_standard_input(run: Run, photos: Path, tmp_path: Path) -> None:
    shutil.copy(photos / "rocket.jpg", tmp_path / "rocket.jpg")
    (tmp_path / "notes.txt").write_text("not an image")
    outcome = run(
        "infer", tmp_path, f"{photos}/c*.png", "-", "--json", "--engine", "onnx",
        stdin=(photos / "rocket.jpg").read_bytes(),
    )  # fmt: skip
    answers = [json.loads(line) for line in outcome.out.splitlines()]
    assert outcome.code == 0
    assert [Path(one["input"]).name for one in answers] == [
        "rocket.jpg", "chelsea.png", "coffee.png", "-",
    ]  # fmt: skip
    assert answers[0]["labels"] == answers[3]["labels"]


def test_a_bad_image_stops_no_other(run: Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes((photos / "coffee.png").read_bytes()[:5000])
    outcome = run("infer", "bad.png", photos / "coffee.png", "--json", "--engine", "onnx")
    bad, good = (json.loads(line) for line in outcome.out.splitlines())
    assert outcome.code == 4
    assert (bad["error"]["kind"], bad["error"]["exit_code"]) == ("ImageError", 4)
    assert good["labels"][0]["label"] == "espresso"
    assert "bad.png" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere.jpg"], 4, "nowhere.jpg: can't be read: No such file"),
        (["empty"], 4, "folder without images"),
        (["note.txt"], 4, "not an image"),
        (["*.jpg"], 4, "*.jpg: no file matches"),
        ([], 2, "at least one image"),
        (["x.png", "--engine", "tpu"], 2, "--engine"),
        (["x.png", "--top-k", "0"], 2, "--top-k"),
        (["x.png", "--frobnicate"], 2, "--frobnicate"),
        (["note.txt", "--model", "acme/nowhere"], 5, "no model 'acme/nowhere' is installed"),
        (["--input", "images=nowhere.npy"], 4, "nowhere.npy"),
        (["--input", "other=note.txt"], 4, "no input 'other'; it takes images"),
        (["--input", "images"], 2, "NAME=FILE"),
    ],
)
def test_what_a_user_can_get_wrong(
    arguments: list[str], code: int, said: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("hello")
    outcome = run("infer", *arguments)
    assert (outcome.code, said in outcome.err) == (code, True), outcome.err


def test_engine_that_is_missing_is_reported(run: Run, photos: Path, tmp_path: Path) -> None:
    """Without ONNX Runtime auto uses the other engine, and onnx says what to install."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "onnxruntime.py").write_text("raise ImportError('libfoo.so.1')")
    blocked = {"PYTHONPATH": str(tmp_path / "hidden")}
    auto = run("infer", photos / "coffee.png", "--json", **blocked)
    asked = run("infer", photos / "coffee.png", "--engine", "onnx", **blocked)
    doctor = run("doctor", "--json", **blocked).json()
    assert (auto.code, auto.json()["engine"]) == (0, "tflite")
    assert asked.code == 5
    assert "libfoo.so.1" in asked.err
    assert "hint: pip install" in asked.err
    engines = {one["engine"]: one for one in doctor["engines"]}
    assert engines["tflite"]["available"]
    assert "libfoo.so.1" in engines["onnx"]["problem"]


def test_tensors_instead_of_an_image(run: Run, photos: Path, tmp_path: Path) -> None:
    from PIL import Image

    picture = Image.open(photos / "coffee.png").resize((384, 256), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture.crop((80, 16, 304, 240)), dtype=np.float32)
    tensor = ((pixels - 127) / 128).transpose(2, 0, 1)[None]
    np.save(tmp_path / "x.npy", tensor)
    np.savez(tmp_path / "x.npz", images=tensor)
    (tmp_path / "x.json").write_text(json.dumps({"images": tensor.round(4).tolist()}))
    for engine in ("onnx", "tflite"):
        for name in ("x.npy", "x.npz", "x.json"):
            outcome = run("infer", "--input", f"images={name}", "--engine", engine, "--json")
            assert outcome.json()["labels"][0]["label"] == "espresso"


def test_file_names_can_not_steer_the_terminal(run: Run, photos: Path, tmp_path: Path) -> None:
    evil = tmp_path / "a\x1b[31m\n.png"
    shutil.copy(photos / "coffee.png", evil)
    outcome = run("infer", evil, "--engine", "onnx")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    missing = run("infer", "no\x1b[31m.png")
    assert "\x1b" not in missing.err


def test_names_that_are_not_utf8(run: Run, photos: Path, tmp_path: Path) -> None:
    evil = tmp_path / b"caf\xe9.png".decode(errors="surrogateescape")
    shutil.copy(photos / "coffee.png", evil)
    assert run("infer", tmp_path, "--engine", "onnx").code == 0
    assert run("infer", tmp_path, "--engine", "onnx", "--json").code == 0


def test_installed_model_by_name_and_version(publisher: Publisher, run: Run) -> None:
    green = publisher.bundle / "golden/green.png"
    assert run("models", "install", publisher.bundle).code == 0
    for reference in (NAME, f"{NAME}@1.2.3"):
        answer = run("infer", green, "--model", reference, "--json").json()
        assert answer["labels"][0]["label"] == "green"
    assert run("infer", green, "--model", f"{NAME}@9.9.9").code == 5


@pytest.mark.parametrize(
    ("line", "code", "out", "err"),
    [
        ("infer {good} >&-", 0, "", ""),
        ("infer {good} >&- 2>&- <&-", 0, "", ""),
        ("infer {good} 2>&-", 0, "espresso", ""),
        ("infer {good} 2>/dev/full", 0, "espresso", ""),
        ("infer {good} >/dev/full", 1, "", "No space left"),
        ("infer nowhere.png >&-", 4, "", "nowhere.png"),
        ("infer nowhere.png {good} --json 2>&-", 4, "espresso", ""),
        ("infer - <&-", 4, "", "-: "),
        ("bundle verify /etc 2>/dev/full", 3, "", ""),
        ("keys generate k --encrypt <&-", 2, "", "no terminal"),
        ("keys generate k >&- 2>&-", 0, "", ""),
        ("--version >&-", 0, "", ""),
    ],
)
def test_closed_and_full_streams(
    line: str,
    code: int,
    out: str,
    err: str,
    environment: dict[str, str],
    photos: Path,
    tmp_path: Path,
) -> None:
    """A unit or a cron job may start it with anything closed."""
    command = f"{sys.executable} -m edge_agent {line}".format(good=photos / "coffee.png")
    done = subprocess.run(
        ["sh", "-c", command],
        env=environment,
        cwd=tmp_path,
        timeout=50,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, out in done.stdout, err in done.stderr) == (code, True, True), done
    assert "Traceback" not in done.stderr
    assert "edge-agent:" not in done.stdout


def test_pipes_and_devices(run: Run, photos: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    shutil.copy(photos / "coffee.png", tmp_path / "good.png")
    whole = run("infer", tmp_path, "--json", "--engine", "onnx")
    assert [Path(json.loads(line)["input"]).name for line in whole.out.splitlines()] == ["good.png"]
    assert run("infer", "/dev/null").code == 4
    assert run("infer", "/dev/zero", EDGE_AGENT_ENGINE="onnx").code == 4


def test_one_bad_argument_stops_no_other(run: Run, photos: Path) -> None:
    outcome = run("infer", "a" * 300, photos / "coffee.png", "--engine", "onnx")
    assert (outcome.code, "espresso" in outcome.out) == (4, True)
    assert "File name too long" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["infer", "x.png", "--model", ""], 2),
        (["infer", "x.png", "--model", "acme/x@"], 2),
        (["infer", "x.png", "--model", "a" * 300], 5),
        (["infer", "x.png", "--model", "~nosuchuser/x"], 5),
        (["bundle", "verify", ""], 2),
        (["models", "remove", "acme/x@"], 5),
        (["models", "remove", ""], 5),
        (["keys", "revoke", "a" * 300], 2),
        (["keys", "trust", "~nosuchuser/k.pub", "--for", "x"], 4),
        (["keys", "generate", ""], 2),
    ],
)
def test_empty_and_odd_names(
    arguments: list[str], code: int, run: Run, photos: Path, tmp_path: Path
) -> None:
    shutil.copy(photos / "coffee.png", tmp_path / "x.png")
    assert run(*arguments).code == code


def test_a_name_never_means_a_folder(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    """Another trusted bundle that happens to lie there must not answer for the name."""
    shutil.copytree(publisher.bundle, tmp_path / "acme" / "widget")
    refused = run("infer", publisher.bundle / "golden/green.png", "--model", "acme/widget")
    assert refused.code == 5
    assert "is ./acme/widget meant?" in refused.err
    path = run("infer", publisher.bundle / "golden/green.png", "--model", "./acme/widget")
    assert path.code == 0


ENDLESS = """
import signal, sys, time
from edge_agent.cli import infer_run, main
def endless(options):
    print("started", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
infer_run.run = endless
sys.argv[1:] = ["infer", "x.png"]
main.main()
"""


def test_ctrl_c_ends_even_what_never_ends(environment: dict[str, str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


def test_message_is_never_lost_while_an_engine_loads(
    run: Run, photos: Path, tmp_path: Path
) -> None:
    """LiteRT's chatter is kept off standard error while it loads; ours must not go with it."""
    assert run("infer", photos / "coffee.png", "--engine", "tflite").code == 0
    (tmp_path / "bad.png").write_bytes((photos / "coffee.png").read_bytes()[:9000])
    for _ in range(3):
        outcome = run("infer", "bad.png", "--engine", "tflite")
        assert (outcome.code, "bad.png" in outcome.err) == (4, True)


def test_no_engine_leaves_traces_in_the_home(run: Run, photos: Path, tmp_path: Path) -> None:
    """ONNX Runtime's telemetry would keep a device id and a database there."""
    home = tmp_path / "home"
    home.mkdir()
    for engine in ("onnx", "tflite"):
        assert run("infer", photos / "coffee.png", "--engine", engine, HOME=str(home)).code == 0
    assert list(home.rglob("*")) == []
