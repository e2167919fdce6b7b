import msgspec
import pytest

from edge_agent.bench import runner
from edge_agent.bench.runner import COLD_STAGES, WARM_STAGES, Plan, summary
from edge_agent.bench.trial import Memory, Trial


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
    figures = made.figures
    assert figures is not None
    assert figures.cold_ms.total.p50 == 2.0
    assert figures.cold_ms.total.runs == 3
    assert figures.warm_ms.infer.runs == 6
    assert figures.memory_mib is not None
    assert figures.memory_mib.session == 20.0  # of the trial that needed most


def test_one_failed_or_wrong_trial_is_enough() -> None:
    assert summary("onnx", [trial(1.0), Trial(error="it crashed")]).error == "it crashed"
    wrong = summary("onnx", [trial(1.0), trial(1.0, wrong="class 2")]).figures
    assert wrong is not None
    assert wrong.wrong == "class 2"


def test_a_failed_engine_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MODULE", "edge_agent.bench.none")
    steps: list[tuple[int, int]] = []
    plan = Plan("x", ("onnx", "onnx"), None, trials=2, runs=1, timeout_s=20.0)
    (made,) = runner.run(plan, lambda done, total: steps.append((done, total)))
    assert "No module named edge_agent.bench.none" in (made.error or "")
    assert steps == [(1, 2), (2, 2)]


@pytest.mark.parametrize(("runs", "trials"), [(100, 3), (2, 3), (1, 1), (7, 7)])
def test_runs_are_spread_exactly(runs: int, trials: int) -> None:
    shares = [runner._share(runs, trials, turn) for turn in range(trials)]
    assert sum(shares) == runs
    assert max(shares) - min(shares) <= 1


def test_a_trial_survives_its_journey() -> None:
    one = trial(1.5)
    assert msgspec.json.decode(msgspec.json.encode(one), type=Trial) == one
