"""The quick reader of `infer` lines and Typer agree, or the quick reader stands aside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer

from edge_agent.cli import infer_run
from edge_agent.cli.infer import Engine
from edge_agent.cli.infer_options import InferOptions, read_plainly
from edge_agent.cli.main import application
from edge_agent.config import ENGINES

PLAIN = [
    ["a.png"],
    ["a.png", "b.png", "-"],
    ["-"],
    ["a.png", "--json"],
    ["--json", "a.png"],
    ["--no-cache", "a.png", "--json"],
    ["a.png", "--engine", "tflite", "--top-k", "3"],
    ["--engine=onnx", "--top-k=1000", "a.png"],
    ["--model", "acme/x@1.0.0", "a.png", "--model", "acme/y"],
    ["--input", "a=b.npy", "--input=c=d.json"],
    ["x.png", "--input", "a=b.npy", "--model=./x"],
]
NOT_PLAIN = [
    [],
    ["--help"],
    ["-h"],
    ["a.png", "-h"],
    ["a.png", "--help"],
    ["a.png", "--frobnicate"],
    ["a.png", "--top-k", "0"],
    ["a.png", "--top-k", "1001"],
    ["a.png", "--top-k", "x"],
    ["a.png", "--top-k", "٣"],
    ["a.png", "--engine", "tpu"],
    ["a.png", "--engine"],
    ["a.png", "--model", ""],
    ["a.png", "--model", "--json"],
    ["a.png", "--json=yes"],
    ["a.png", "--no-cache=yes"],
    ["--no-cache"],
    ["--", "-a.png"],
    ["-x"],
    ["--json"],
]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[InferOptions]]:
    options: list[InferOptions] = []

    def run(given: InferOptions) -> int:
        options.append(given)
        return 0

    monkeypatch.setattr(infer_run, "run", run)
    yield options


@pytest.mark.parametrize("arguments", PLAIN)
def test_plain_lines_mean_the_same_to_both(arguments: list[str], seen: list[InferOptions]) -> None:
    with pytest.raises(SystemExit) as leave:
        typer.main.get_command(application(["infer"])).main(["infer", *arguments])
    assert leave.value.code == 0
    plain = read_plainly(arguments)
    assert plain is not None
    assert vars(plain) == vars(seen[0])


def test_engines_are_those_of_the_configuration() -> None:
    assert tuple(Engine) == ENGINES


@pytest.mark.parametrize("arguments", NOT_PLAIN)
def test_anything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert read_plainly(arguments) is None
