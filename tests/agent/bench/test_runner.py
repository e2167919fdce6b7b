import msgspec
import pytest

from edge_agent.bench import runner
from edge_agent.bench.runner import Plan, summary
from edge_agent.bench.trial import COLD_STAGES, WARM_STAGES, Memory, Trial


def trial(ms: float, mib: float = 10.0, wrong: str | None = None) -> Trial:
    return Trial(
        cold_ms=dict.fromkeys(COLD_STAGES, ms),
        warm_ms={stage: [ms, ms] for stage in WARM_STAGES},
        memory=Memory(50.0, 55.0, 50.0 + mib),
        sample="golden",
        wrong=wrong,
        threads=2,
        version="engine 1",
    )


def test_trials_are_put_together() -> None:
    made = summary("onnx", [trial(1.0), trial(3.0, mib=20.0), trial(2.0)])
    assert made.cold_ms["total"].p50 == 2.0
    assert made.cold_ms["total"].runs == 3
    assert made.warm_ms["infer"].runs == 6
    assert made.memory_mib is not None
    assert made.memory_mib.session == 20.0  # of the trial that needed most


def test_one_failed_or_wrong_trial_is_enough() -> None:
    assert summary("onnx", [trial(1.0), Trial(error="it crashed")]).error == "it crashed"
    assert summary("onnx", [trial(1.0), trial(1.0, wrong="class 2")]).wrong == "class 2"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV: it said nothing"),
        ("import sys; print('no memory', file=sys.stderr); sys.exit(3)", "ended with 3: no memory"),
        ("print('not JSON')", "ended with 0"),
        ("import time; time.sleep(60)", "took longer than 1 s, and was stopped"),
    ],
)
def test_a_process_that_dies_or_hangs_is_an_error(
    monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(runner, "COMMAND", ("-c", code))
    steps: list[tuple[int, int]] = []
    plan = Plan("x", ("onnx",), None, trials=2, runs=1, timeout_s=1.0)
    made = runner.run(plan, lambda done, total: steps.append((done, total)))
    assert said in (made[0].error or "")
    assert steps == [(1, 2), (2, 2)]


def test_a_trial_survives_its_journey() -> None:
    one = trial(1.5)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Trial) == one
