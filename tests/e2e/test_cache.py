"""Answers that were given before: what the commands show of them, and what becomes of faults."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edge_signing.keyring import Keyring

from .conftest import NAME, Publisher, Run


@pytest.fixture
def photo(publisher: Publisher) -> Path:
    return publisher.bundle / "golden/green.png"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cache.sqlite3"


def entries(run: Run) -> list[Any]:
    return [json.loads(line) for line in run("cache", "export").out.splitlines()]


def test_the_same_question_again_is_answered_from_the_cache(
    run: Run, photo: Path, tmp_path: Path
) -> None:
    asked = ("infer", photo, "--model", "./bundle", "--engine", "onnx")
    first = run(*asked, "--json").json()
    again = run(*asked, "--json").json()
    assert (first["cached"], again["cached"]) == (False, True)
    assert again["timings_ms"] == {}
    changing = ("cached", "timings_ms")
    assert {k: v for k, v in first.items() if k not in changing} == {
        k: v for k, v in again.items() if k not in changing
    }
    lines = run(*asked).out.splitlines()
    assert lines[0] == f"{photo}  ({NAME} 1.2.3, onnx, cached)"
    assert lines[1].split()[0] == "green"


def test_a_hit_imports_neither_numpy_nor_an_engine(run: Run, photo: Path, tmp_path: Path) -> None:
    asked = ("infer", photo, "--model", "./bundle")
    assert run(*asked).code == 0
    script = """
import sys
from edge_agent.cli.main import guarded
code = guarded(sys.argv[1:])
heavy = {"numpy", "onnxruntime", "ai_edge_litert", "typer", "asyncio"}
print("imported:", sorted(heavy.intersection(sys.modules)))
sys.exit(code)
"""
    outcome = run(*asked, script=script)
    assert (outcome.code, "cached" in outcome.out) == (0, True), outcome.err
    assert outcome.out.splitlines()[-1] == "imported: []"


def test_no_cache_neither_asks_nor_keeps(run: Run, photo: Path, file: Path) -> None:
    asked = ("infer", photo, "--model", "./bundle", "--engine", "onnx", "--json")
    assert run(*asked, "--no-cache").json()["cached"] is False
    assert not file.exists()
    run(*asked)
    assert run(*asked, "--no-cache").json()["cached"] is False
    assert run(*asked).json()["cached"] is True


def test_mib_0_switches_it_off(run: Run, photo: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "config" / "config.toml").write_text("[cache]\nmib = 0\n")
    for _ in range(2):
        answer = run("infer", photo, "--model", "./bundle", "--json").json()
        assert answer["cached"] is False
    assert not file.exists()
    assert "switched off" in run("cache", "stats").out


def test_another_model_and_other_questions_are_computed(
    run: Run, photo: Path, publisher: Publisher, tmp_path: Path
) -> None:
    asked = ("infer", photo, "--model", "./bundle", "--json")
    run(*asked)
    assert run(*asked, "--top-k", "1").json()["cached"] is False
    yaml = (publisher.bundle / "model.yaml").read_text()
    publisher.put("model.yaml", yaml.replace("1.2.3", "1.2.4").encode())
    shutil.rmtree(publisher.bundle / "signatures")
    publisher.sign()
    answer = run(*asked).json()
    assert (answer["cached"], answer["model"]["version"]) == (False, "1.2.4")


def test_a_bundle_that_is_trusted_no_more_is_refused_in_spite_of_the_cache(
    run: Run, photo: Path, publisher: Publisher
) -> None:
    asked = ("infer", photo, "--model", "./bundle")
    assert run(*asked).code == 0
    publisher.trust(Keyring())
    assert run(*asked).code == 3


def test_tensors_are_remembered_too(run: Run, photos: Path, tmp_path: Path) -> None:
    import numpy as np

    np.save(tmp_path / "x.npy", np.full((1, 3, 224, 224), 0.25, np.float32))
    asked = ("infer", "--input", "images=x.npy", "--engine", "onnx", "--json")
    first, again = run(*asked).json(), run(*asked).json()
    assert (first["cached"], again["cached"]) == (False, True)
    assert first["labels"] == again["labels"]


def test_stats_export_and_clear(run: Run, photo: Path, file: Path) -> None:
    assert run("cache", "stats", "--json").json()["entries"] == 0
    assert entries(run) == []
    assert run("cache", "clear").out == "removed 0 answers\n"
    assert not file.exists()
    asked = ("infer", photo, "--model", "./bundle")
    for _ in range(3):
        run(*asked)
    seen = run("cache", "stats", "--json").json()
    assert set(seen) == {
        "schema", "path", "mib", "ttl_s", "entries", "hits", "size_bytes", "rebuilt", "reason",
    }  # fmt: skip
    assert (seen["entries"], seen["hits"], seen["rebuilt"]) == (1, 2, None)
    (one,) = entries(run)
    assert set(one) == {
        "schema", "key", "bundle", "engine", "created", "last_used", "hits", "size_bytes",
    }  # fmt: skip
    assert (one["engine"], one["hits"], one["bundle"][:7]) == ("onnx", 2, "sha256:")
    assert "green" not in run("cache", "export").out
    assert run("cache", "clear", "--json").json()["removed"] == 1
    assert run("cache", "stats", "--json").json()["entries"] == 0
    assert "cached" not in run(*asked).out


@pytest.mark.parametrize("damage", [b"garbage" * 1000, b"", b"SQLite format 3\0" + bytes(5000)])
def test_damage_costs_no_answer_and_is_told_by_doctor(
    damage: bytes, run: Run, photo: Path, file: Path
) -> None:
    asked = ("infer", photo, "--model", "./bundle")
    run(*asked)
    for name in ("cache.sqlite3-wal", "cache.sqlite3-shm"):
        file.with_name(name).unlink(missing_ok=True)
    file.write_bytes(damage)
    outcome = run(*asked)
    assert (outcome.code, outcome.err, "green" in outcome.out) == (0, "", True)
    run(*asked)
    assert "cached" in run(*asked).out
    found = run("doctor", "--json").json()
    check = next(one for one in found["checks"] if one["name"] == "cache")
    assert check["status"] == "pass"
    if damage:
        assert found["cache"]["rebuilt"] in check["found"]
        assert found["cache"]["reason"] in check["found"]


def test_what_can_t_be_used_is_told_by_doctor_and_the_cache_commands(
    run: Run, photo: Path, file: Path
) -> None:
    run("infer", photo, "--model", "./bundle")
    file.chmod(0o666)
    outcome = run("infer", photo, "--model", "./bundle")
    assert (outcome.code, outcome.err, "cached" in outcome.out) == (0, "", False)
    check = next(one for one in run("doctor", "--json").json()["checks"] if one["name"] == "cache")
    assert check["status"] == "warn"
    assert "changed by others" in check["found"]
    assert "chmod go-w" in check["hint"]
    for command in ("stats", "export", "clear"):
        refused = run("cache", command)
        assert (refused.code, "chmod go-w" in refused.err) == (1, True)


def test_a_database_that_is_damaged_inside_can_be_cleared(
    run: Run, photo: Path, file: Path
) -> None:
    run("infer", photo, "--model", "./bundle")
    database = sqlite3.connect(file)
    database.execute("DROP TABLE entries")
    database.close()
    refused = run("cache", "stats")
    assert (refused.code, "cache clear" in refused.err) == (1, True)
    assert run("cache", "clear").code == 0
    assert run("cache", "stats").code == 0
    assert "no such table" in run("cache", "stats", "--json").json()["reason"]


def test_a_python_without_sqlite_answers_and_doctor_says_so(
    run: Run, photo: Path, tmp_path: Path
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sqlite3.py").write_text("raise ImportError('no _sqlite3')")
    hidden = {"PYTHONPATH": str(tmp_path / "hidden")}
    for _ in range(2):
        answer = run("infer", photo, "--model", "./bundle", "--json", **hidden).json()
        assert answer["cached"] is False
    check = next(
        one for one in run("doctor", "--json", **hidden).json()["checks"] if one["name"] == "cache"
    )
    assert (check["status"], "no SQLite" in check["found"]) == ("warn", True)
    assert run("cache", "stats", **hidden).code == 5
