"""Engines are timed and judged; what was found is remembered for these bytes on this machine."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_agent import engine_choice
from edge_agent.engine_choice import ChoiceMemory, Measurement, Probe, fastest, measure
from edge_agent.errors import (
    EngineUnavailableError,
    GoldenMismatchError,
    ModelFileError,
    TensorError,
)

if TYPE_CHECKING:
    from edge_agent.types import Tensor

OUTPUTS: Mapping[str, Tensor] = {"y": np.zeros(1)}
DIGEST = "sha256:" + "a" * 64


class FakeProbe:
    """Each run takes the given milliseconds in turn, the last of them for all that follow."""

    def __init__(self, clock: Clock, *runs_ms: float, problem: str | None = None) -> None:
        self.clock = clock
        self.runs_ms = runs_ms
        self.problem = problem
        self.ran = 0

    def load(self) -> Probe:
        self.clock.now += 99  # loading doesn't count
        return Probe(self.run, self.judge)

    def run(self) -> Mapping[str, Tensor]:
        self.clock.now += self.runs_ms[min(self.ran, len(self.runs_ms) - 1)] / 1e3
        self.ran += 1
        return OUTPUTS

    def judge(self, outputs: Mapping[str, Tensor]) -> str | None:
        self.clock.now += 99  # neither does judging
        assert outputs is OUTPUTS
        return self.problem


class Clock:
    """Seconds, as `perf_counter` gives them."""

    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(engine_choice, "perf_counter", lambda: made.now)
    return made


def failing(error: Exception) -> Callable[[], Probe]:
    def load() -> Probe:
        raise error

    return load


@pytest.mark.parametrize(
    ("runs_ms", "share_ms", "median", "ran"),
    [
        ((30, 1), 100, 1, 21),  # the first run warms up and does not count
        ((20, 15), 41, 15, 2),
        ((1, 5, 3, 4), 14, 4, 4),
        ((30,), 20, 30, 1),  # one run always happens, and counts where it is alone
        ((30,), 59.9, 30, 1),
        ((30,), 60.1, 30, 2),
        ((0,), 1e6, 0, 21),
        ((0,), 0, 0, 21),
        ((10,), 45, 10, 4),
    ],
)
def test_the_median_within_the_share(
    clock: Clock, runs_ms: tuple[float, ...], share_ms: float, median: float, ran: int
) -> None:
    probe = FakeProbe(clock, *runs_ms)
    found = measure("onnx", probe.load, share_ms)
    assert (found.engine, found.problem, probe.ran) == ("onnx", None, ran)
    assert found.run_ms == pytest.approx(median, abs=1e-6)


def test_a_wrong_answer_ends_the_measuring_at_once(clock: Clock) -> None:
    probe = FakeProbe(clock, 0, problem="class 3 instead of 4")
    with pytest.raises(GoldenMismatchError, match="on onnx: class 3 instead of 4"):
        measure("onnx", probe.load, 100)
    assert probe.ran == 1


@pytest.mark.parametrize(
    "error", [ModelFileError("bad"), EngineUnavailableError("none"), TensorError("odd")]
)
def test_what_the_engine_raises_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error)):
        measure("tflite", failing(error), 100)


def test_a_fault_of_the_agent_is_none() -> None:
    with pytest.raises(ZeroDivisionError):
        measure("onnx", failing(ZeroDivisionError()), 100)


A, B, ZERO = Measurement("a", 2.0), Measurement("b", 1.0), Measurement("c", 0.0)
BAD = Measurement("d", None, ModelFileError("refuses the model"))


def test_the_fastest_that_answers_right_wins() -> None:
    assert fastest([A, B]) == "b"
    assert fastest([A, BAD]) == "a"
    assert fastest([BAD, A, B, ZERO]) == "c"
    assert fastest([Measurement("x", 1.0), B]) == "x"


def test_where_none_can_be_used_every_reason_is_told() -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        fastest([BAD, Measurement("e", None, EngineUnavailableError("not installed"))])
    assert "d: refuses the model; e: not installed" in caught.value.message
    assert "doctor" in (caught.value.hint or "")


@pytest.fixture
def memory(tmp_path: Path) -> ChoiceMemory:
    return ChoiceMemory(tmp_path / "state" / "engine_choices")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "engine_choices" / ("a" * 64 + ".json")


def test_what_was_measured_is_recalled(memory: ChoiceMemory, file: Path) -> None:
    assert memory.recall(DIGEST, "f1") == {}
    memory.remember(DIGEST, "f1", [A, BAD])
    assert memory.recall(DIGEST, "f1") == {"a": 2.0, "d": None}
    memory.remember(DIGEST, "f1", [B, Measurement("a", 3.0)])
    assert memory.recall(DIGEST, "f1") == {"a": 3.0, "b": 1.0, "d": None}
    assert list(json.loads(file.read_bytes())["by_fingerprint"]) == ["f1"]


def test_another_machine_or_other_bytes_are_measured_again(memory: ChoiceMemory) -> None:
    memory.remember(DIGEST, "f1", [A])
    assert memory.recall(DIGEST, "f2") == {}
    assert memory.recall("sha256:" + "b" * 64, "f1") == {}
    memory.remember(DIGEST, "f2", [B])
    assert memory.recall(DIGEST, "f2") == {"b": 1.0}


def test_the_folders_are_the_agents_alone(memory: ChoiceMemory, file: Path) -> None:
    memory.remember(DIGEST, "f1", [A])
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (file, file.parent, file.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]


GOOD = {"schema": "edge-agent/engine-choice/v1", "by_fingerprint": {"f1": {"a": 2.0}}}
DAMAGED = {
    "empty": b"",
    "zeros": bytes(80),
    "cut": json.dumps(GOOD).encode()[:-3],
    "no UTF-8": b'{"schema": "\xff"}',
    "an array": b"[1]",
    "a number": b"1",
    "null": b"null",
    "another schema": json.dumps(GOOD | {"schema": "v2"}).encode(),
    "no times": json.dumps({k: v for k, v in GOOD.items() if k != "by_fingerprint"}).encode(),
    "times that are none": json.dumps(GOOD | {"by_fingerprint": {"f1": {"a": "fast"}}}).encode(),
    "a time before it began": json.dumps(GOOD | {"by_fingerprint": {"f1": {"a": -1}}}).encode(),
    "too deep": b"[" * 60_000,
    "too long": json.dumps(GOOD | {"x": "x" * 70_000}).encode(),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_nothing_remembered(memory: ChoiceMemory, file: Path, case: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(json.dumps(GOOD).encode())
    assert memory.recall(DIGEST, "f1") == {"a": 2.0}
    file.write_bytes(DAMAGED[case])
    assert memory.recall(DIGEST, "f1") == {}
    memory.remember(DIGEST, "f1", [B])
    assert memory.recall(DIGEST, "f1") == {"b": 1.0}


def test_a_folder_in_the_files_place(memory: ChoiceMemory, file: Path) -> None:
    file.mkdir(parents=True)
    assert memory.recall(DIGEST, "f1") == {}
    with pytest.raises(OSError):
        memory.remember(DIGEST, "f1", [A])


def test_a_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    memory = ChoiceMemory(tmp_path / "state" / "engine_choices")
    assert memory.recall(DIGEST, "f1") == {}
    with pytest.raises(OSError):
        memory.remember(DIGEST, "f1", [A])
