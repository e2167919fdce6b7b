"""`edge-agent bench` with real engines, each trial in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from tests.agent.bench.builders import engine, report

from .conftest import MODEL_YAML, Publisher, Run, colour_model

FEW = ("--model", "./bundle", "--runs", "2", "--trials", "1")


def resign(publisher: Publisher) -> None:
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign()


def test_figures_of_every_stage(run: Run, publisher: Publisher) -> None:
    made = run("bench", *FEW, "--runs", "4", "--trials", "2", "--json").json()
    (one,) = made["engines"]
    assert (one["engine"], one["error"]) == ("onnx", None)
    figures = one["figures"]
    assert (figures["sample"], figures["wrong"]) == ("golden", None)
    assert made["schema"] == "edge-agent/bench/v1"
    assert made["model"]["digest"].startswith("sha256:")
    cold, warm = figures["cold_ms"], figures["warm_ms"]
    assert {stage: times["runs"] for stage, times in cold.items()} == dict.fromkeys(
        ("start", "open", "read", "load", "first", "total"), 2
    )
    assert {stage: times["runs"] for stage, times in warm.items()} == dict.fromkeys(
        ("prepare", "infer", "answer", "total"), 4
    )
    for times in (*cold.values(), *warm.values()):
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
    stages = ("start", "open", "read", "load", "first")
    assert cold["total"]["p99"] <= sum(cold[stage]["p99"] for stage in stages) * 1.001
    assert warm["total"]["p50"] >= warm["infer"]["p50"]
    memory = figures["memory_mib"]
    assert 0 < memory["before"] <= memory["loaded"] <= memory["peak"]


def test_a_report_is_kept_and_compared(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    assert run("bench", *FEW, "--report", "a.json").code == 0
    assert run("bench", *FEW, "--compare", "a.json", "--threshold", "100000").code == 0
    earlier = json.loads((tmp_path / "a.json").read_text())
    earlier["engines"][0]["figures"]["cold_ms"]["total"]["p50"] = 1.0
    (tmp_path / "fast.json").write_text(json.dumps(earlier))
    slower = run("bench", *FEW, "--compare", "fast.json", "--json", "--report", "b.md")
    assert slower.code == 6
    assert "worse than before by more than 10 %: " in slower.err
    worse = [one["figure"] for one in slower.json()["changes"] if one["is_regression"]]
    assert "cold total p50 ms" in worse
    assert (tmp_path / "b.md").read_text().startswith("# acme/colour 1.2.3\n")


@pytest.mark.parametrize(("limit", "code"), [("0.0001", 6), ("100000", 0)])
def test_contract_is_told_and_enforced(
    run: Run, publisher: Publisher, limit: str, code: int
) -> None:
    publisher.put("model.yaml", (MODEL_YAML + f"contract: {{latency_ms: {limit}}}\n").encode())
    resign(publisher)
    told = run("bench", *FEW)
    assert told.code == 0
    verdict = "holds" if code == 0 else "is broken"
    assert f"contract.latency_ms {float(limit):g} {verdict} here" in told.out
    assert run("bench", *FEW, "--enforce").code == code


def test_a_wrong_golden_answer_is_told(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    changed = MODEL_YAML.replace("{index: 1,", "{index: 2,")
    publisher.put("model.yaml", changed.encode())
    resign(publisher)
    told = run("bench", *FEW, "--report", "wrong.json")
    assert (told.code, "onnx: wrong answer to the golden input: class 1" in told.out) == (0, True)
    Image.new("RGB", (8, 8), "red").save(tmp_path / "red.png")
    enforced = run("bench", "red.png", *FEW, "--enforce")  # whatever is measured
    assert enforced.code == 6
    assert "no engine here answers the golden input rightly" in enforced.err


def test_an_answer_that_was_right_before_is_a_regression(
    run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    assert run("bench", *FEW, "--report", "right.json").code == 0
    publisher.put("model.yaml", MODEL_YAML.replace("{index: 1,", "{index: 2,").encode())
    resign(publisher)
    wrong = run("bench", *FEW, "--compare", "right.json", "--threshold", "100000", "--json")
    assert wrong.code == 6
    assert "onnx answers wrongly now" in wrong.err
    assert wrong.json()["losses"]
    publisher.put("weights/model.onnx", colour_model().replace(b"scores", b"scoreX"))
    resign(publisher)
    failed = run("bench", *FEW, "--compare", "right.json", "--threshold", "100000")
    assert failed.code == 6
    assert "onnx fails now" in failed.err


def test_what_is_not_trusted_is_not_measured(run: Run, publisher: Publisher) -> None:
    publisher.put("weights/model.onnx", colour_model() + b"\0")
    assert run("bench", *FEW).code == 3


def test_a_project_is_measured_without_a_signature(
    run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "bundle/signatures")
    done = run("bench", *FEW, "--json")
    assert done.code == 0
    assert "./bundle is an unsigned project" in done.err
    assert done.json()["model"]["digest"] == ""


def test_paths_that_are_no_text(run: Run, publisher: Publisher, tmp_path: Path) -> None:
    sample = tmp_path / os.fsdecode(b"s\xff.png")
    shutil.copy(publisher.bundle / "golden/green.png", sample)
    place = publisher.bundle.rename(tmp_path / os.fsdecode(b"b\xff"))
    few = [*FEW[2:], "--model", f"./{place.name}"]
    kept = run("bench", sample, *few, "--report", "r.json")
    assert kept.code == 0, kept.err
    compared = run("bench", sample, *few, "--compare", "r.json", "--threshold", "9999")
    assert compared.code == 0, compared.err
    made = json.loads((tmp_path / "r.json").read_text())
    assert made["engines"][0]["figures"]["sample"] == r"s\udcff.png"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("none.png",), 4, "none.png: can't be read"),
        (("a.txt",), 4, "a.txt"),
        (("--compare", "none.json"), 4, "none.json: can't be read"),
        (("--engine", "tflite"), 5, "has no file for the engine tflite"),
        (("--report", "none/a.json"), 2, "none/a.json: lies in no folder that exists"),
        (("--compare", "other.json"), 4, "that report is of acme/other"),
        (("--runs", "0"), 2, "runs"),
        (("--model", "./none"), 4, "none"),
        (("--model", "none"), 5, "no model 'none' is installed"),
    ],
)
def test_bad_input(
    run: Run, publisher: Publisher, tmp_path: Path, arguments: Any, code: int, said: str
) -> None:
    (tmp_path / "a.txt").write_text("no image")
    other = report(engine(), name="acme/other")
    (tmp_path / "other.json").write_bytes(msgspec.json.encode(other))
    done = run("bench", *FEW, *arguments)
    assert (done.code, said in done.err) == (code, True), done.err


def test_the_folder_that_it_runs_in_lends_no_module(
    run: Run, publisher: Publisher, tmp_path: Path
) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise SystemExit('a stranger ran')")
    (tmp_path / "json.py").write_text("raise SystemExit('a stranger ran')")
    script = "import sys; sys.path.remove(''); from edge_agent.cli.main import main; main()"
    done = run("bench", *FEW, script=script)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("command", [("bench", *FEW), ("doctor",), ("bundle", "lint", "./bundle")])
def test_a_full_standard_output_is_one_line(
    publisher: Publisher, environment: dict[str, str], command: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "edge_agent", *command, "--json"],
            cwd=publisher.bundle.parent,
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("No space left on device")
    assert "Traceback" not in done.stderr
