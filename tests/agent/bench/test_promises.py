from edge_agent.bench.promises import judge
from edge_agent.bench.report import EngineReport
from edge_agent.description import Contract

from .builders import engine


def verdicts(contract: Contract, *engines: EngineReport) -> dict[str, tuple[bool, str]]:
    return {one.name: (one.holds, one.engine) for one in judge(contract, engines, None, None)}


def test_the_fastest_engine_must_keep_the_promise() -> None:
    contract = Contract(latency_ms=6.0, memory_mib=25)
    found = verdicts(contract, engine("onnx", warm_ms=9.0), engine("tflite", warm_ms=5.0, mib=30.0))
    assert found == {
        "contract.latency_ms": (True, "tflite"),
        "contract.memory_mib": (False, "tflite"),
    }


def test_it_is_the_engine_that_inference_would_choose() -> None:
    """At most 10 % slower, the first in the order of preference is taken."""
    contract = Contract(latency_ms=6.0)
    found = verdicts(contract, engine("onnx", warm_ms=5.4), engine("tflite", warm_ms=5.0))
    assert found == {"contract.latency_ms": (True, "onnx")}


def test_latency_is_the_95th_percentile() -> None:
    contract = Contract(latency_ms=6.0)
    assert verdicts(contract, engine(warm_ms=5.0, p95_ms=7.0)) == {
        "contract.latency_ms": (False, "onnx")
    }


def test_a_limit_that_is_met_exactly_holds() -> None:
    assert verdicts(Contract(latency_ms=5.0), engine(warm_ms=5.0))["contract.latency_ms"][0]


def test_an_engine_that_answers_wrongly_keeps_nothing() -> None:
    fast = engine("onnx", warm_ms=1.0, wrong="class 2 instead of class 1")
    found = verdicts(Contract(latency_ms=4.0), fast, engine("tflite", warm_ms=5.0))
    assert found == {"contract.latency_ms": (False, "tflite")}
    assert judge(Contract(latency_ms=4.0), [fast], None, None) == ()


def test_limits_of_the_device_are_judged_too() -> None:
    found = judge(Contract(), [engine(warm_ms=5.0, mib=30.0)], 4, 40)
    assert [(one.name, one.limit, one.measured, one.holds) for one in found] == [
        ("device max_latency_ms", 4, 5.0, False),
        ("device max_memory_mib", 40, 30.0, True),
    ]


def test_an_engine_without_figures_is_left_out() -> None:
    failed = EngineReport("onnx", error="took longer than 1 s, and was stopped")
    assert judge(Contract(latency_ms=4.0), [failed], None, None) == ()
