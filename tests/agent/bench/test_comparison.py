import pytest

from edge_agent.bench.comparison import compare, differences, losses, require_comparable
from edge_agent.bench.report import BenchReport, EngineReport
from edge_agent.errors import BadInputError

from .builders import engine, report

WARM = ["warm infer p50 ms", "warm total p50 ms"]


@pytest.mark.parametrize(
    ("then", "now", "threshold", "worse"),
    [
        (engine(warm_ms=10.0), engine(warm_ms=10.9), 10, []),
        (
            engine(warm_ms=10.0),
            engine(warm_ms=11.2),
            10,
            ["warm infer p50 ms", "warm total p50 ms"],
        ),
        (engine(warm_ms=10.0), engine(warm_ms=11.2), 20, []),
        (engine(warm_ms=10.0), engine(warm_ms=5.0), 0, []),
        (engine(cold_ms=200.0), engine(cold_ms=250.0), 10, ["cold total p50 ms"]),
        (engine(mib=30.0), engine(mib=40.0), 10, ["memory MiB"]),
        # Twice as long, and within what a timer's noise makes of it.
        (engine(warm_ms=0.05), engine(warm_ms=0.1), 10, []),
        (engine(mib=1.0), engine(mib=2.5), 10, []),
    ],
)
def test_what_grew_by_more_than_the_threshold_is_worse(
    then: EngineReport, now: EngineReport, threshold: float, worse: list[str]
) -> None:
    changes = compare(report(then), report(now), threshold)
    assert [one.figure for one in changes if one.is_regression] == worse
    assert len(changes) == 4


@pytest.mark.parametrize(
    ("then", "now", "lost"),
    [
        (engine(), EngineReport("onnx", error="it crashed"), ["onnx fails now: it crashed"]),
        (engine(), engine(wrong="class 2"), ["onnx answers wrongly now: class 2"]),
        (engine(wrong="class 2"), engine(wrong="class 2"), []),
        (EngineReport("onnx", error="it crashed"), EngineReport("onnx", error="again"), []),
        (engine(), engine(), []),
        (engine(), engine("tflite"), []),  # it wasn't asked for
    ],
)
def test_an_engine_that_was_right_before_is_missed(
    then: EngineReport, now: EngineReport, lost: list[str]
) -> None:
    assert list(losses(report(then), report(now))) == lost


def test_an_engine_that_was_not_asked_for_is_no_regression() -> None:
    changes = compare(report(engine("onnx"), engine("tflite")), report(engine("onnx")), 10)
    assert {one.engine for one in changes} == {"onnx"}


def test_nothing_has_no_multiple() -> None:
    (infer, *_) = compare(report(engine(warm_ms=0.0)), report(engine(warm_ms=5.0)), 10)
    assert (infer.ratio, infer.is_regression) == (None, True)


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (report(engine(), name="acme/other"), "acme/other"),
        (report(engine(sample="a.png")), "'a.png'"),
    ],
)
def test_what_can_not_be_compared_is_refused(then: BenchReport, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        require_comparable(then, "acme/colour", "golden")
    require_comparable(report(engine()), "acme/colour", "golden")


def test_what_else_differs_is_told() -> None:
    then = report(engine("onnx"), engine("tflite"), digest="sha256:2")
    told = list(differences(then, report(engine("onnx"))))
    assert told == ["other bytes: 1.0.0 (2) then, 1.0.0 (1) now", "tflite wasn't measured now"]
    assert list(differences(report(engine()), report(engine()))) == []
