from pathlib import Path

import pytest

from edge_agent.bench import report as reports
from edge_agent.bench.report import EngineReport
from edge_agent.errors import BadInputError

from .builders import engine, report


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    made = report(engine(), EngineReport("tflite", error="no"))
    reports.write(made, tmp_path / "a.json")
    assert reports.read(tmp_path / "a.json") == made


def test_markdown_has_every_figure(tmp_path: Path) -> None:
    reports.write(report(engine(warm_ms=5.25)), tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text()
    assert "| onnx | warm | infer | 5.25 | 5.25 | 5.25 | 3 |" in text
    assert "| onnx | 50.0 | 80.0 | 80.0 | 30.0 |" in text
    rows = [line for line in text.splitlines() if line.startswith("| onnx")]
    assert len(rows) == 6 + 4 + 1


def test_a_stage_that_is_missing_is_refused(tmp_path: Path) -> None:
    reports.write(report(engine()), tmp_path / "a.json")
    for gone in ('"infer": ', '"schema": ', '"total": '):
        text = (tmp_path / "a.json").read_text()
        assert gone in text
        (tmp_path / "b.json").write_text(text.replace(gone, '"other": ', 1))
        with pytest.raises(BadInputError, match="is no report"):
            reports.read(tmp_path / "b.json")


def test_figures_below_zero_are_refused(tmp_path: Path) -> None:
    reports.write(report(engine(warm_ms=5.25)), tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    for figure in ('"p50": 5.25', '"peak": 80.0', '"runs": 3'):
        assert figure in text
        name, _, value = figure.partition(" ")
        (tmp_path / "b.json").write_text(text.replace(figure, f"{name} -{value}", 1))
        with pytest.raises(BadInputError, match="is no report"):
            reports.read(tmp_path / "b.json")


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff\xfe", b'{"schema": "edge-agent/bench/v2"}', b"[" * 100_000],
)
def test_another_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(BadInputError, match="is no report of a bench"):
        reports.read(tmp_path / "a.json")


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="can't be read"):
        reports.read(tmp_path / "none.json")
    with pytest.raises(BadInputError, match="can't be read"):
        reports.read(tmp_path)
    (tmp_path / "big").write_bytes(b" " * (4 * 1024 * 1024 + 1))
    with pytest.raises(BadInputError, match="is larger than"):
        reports.read(tmp_path / "big")


def test_failures_and_wrong_answers_are_told() -> None:
    made = report(EngineReport("onnx", error="it crashed"), engine("tflite", wrong="class 2"))
    assert list(reports.told(made)) == [
        "onnx: it crashed",
        "tflite: wrong answer to the golden input: class 2",
    ]
