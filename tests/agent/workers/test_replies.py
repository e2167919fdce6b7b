"""What a worker may say of a batch, and every way to lie about it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from typing import Any

import msgspec
import pytest

from edge_agent.calls import Answer, Query
from edge_agent.types import ScoredLabel
from edge_agent.workers import replies
from edge_agent.workers.protocol import Answered, Ran, Span, TensorPart
from edge_agent.workers.tensor_memory import TensorMemory
from edge_agent.workers.work import Loaded

OUTPUTS, LABELS = Query("outputs"), Query("labels")
ROW = (ScoredLabel(1, "cat", 0.75), ScoredLabel(0, "dog", 0.25))


@pytest.fixture
def memory() -> Iterator[TensorMemory]:
    one = TensorMemory.create(1 << 26)
    yield one
    one.close()


def part(memory: TensorMemory, **changed: Any) -> TensorPart:
    span = memory.put(bytes(range(24)))
    return msgspec.structs.replace(TensorPart("y", "float32", (2, 3), span), **changed)


def said(memory: TensorMemory, query: Query, **changed: Any) -> Answer:
    whole = Answered((), (), (), {"infer": 1.0})
    ran = Ran(1, (msgspec.structs.replace(whole, **changed),))
    (one,) = replies.outcomes(ran, (query,), memory)
    assert isinstance(one, Answer)
    return one


def test_outputs_are_copied(memory: TensorMemory) -> None:
    parts = (part(memory), part(memory, name="z", dtype="uint8", shape=(24, 1, 1)))
    answer = said(memory, Query("outputs", outputs=("z", "y", "x")), outputs=parts)
    memory.reset()
    memory.put(bytes(100))
    assert [one.data for one in answer.outputs] == [bytes(range(24))] * 2
    assert [(one.name, one.dtype, one.shape) for one in answer.outputs] == [
        ("y", "float32", (2, 3)),
        ("z", "uint8", (24, 1, 1)),
    ]


def test_scalars_and_empty_tensors_are_outputs(memory: TensorMemory) -> None:
    scalar = part(memory, shape=(), span=memory.put(bytes(4)))
    empty = part(memory, name="z", shape=(0, 2**62), span=Span(0, 0))
    answer = said(memory, OUTPUTS, outputs=(scalar, empty))
    assert [len(one.data) for one in answer.outputs] == [4, 0]


def test_labels_are_taken(memory: TensorMemory) -> None:
    answer = said(memory, Query("labels", top_k=2), labels=(ROW, ROW), confident=(True, False))
    assert answer.labels == (ROW, ROW)
    assert answer.confident == (True, False)
    assert answer.timings_ms == {"infer": 1.0}


OUTPUT_LIES = [
    ({"dtype": "float64"}, "24 bytes for float64"),
    ({"dtype": "object"}, "no model can have"),
    ({"dtype": "O"}, "no model can have"),
    ({"shape": (2, 2)}, "24 bytes for float32"),
    ({"shape": (2, 3, 0)}, "24 bytes for float32"),
    ({"shape": (2**62, 2**62)}, "24 bytes for float32"),
    ({"shape": (1,) * 7 + (6, 1)}, "no model can have"),
    ({"name": ""}, "no model can have"),
    ({"name": "y" * 257}, "no model can have"),
    ({"is_json": True}, "24 bytes"),
    ({"span": Span(0, 20)}, "20 bytes"),
    ({"span": Span(1 << 26, 24)}, "outside of the shared memory"),
    ({"span": Span((1 << 26) - 23, 24)}, "outside of the shared memory"),
    ({"span": Span(2**63, 24)}, "outside of the shared memory"),
    ({"span": Span(0, 2**62), "shape": (2**60,)}, "more than it has written"),
    ({"span": Span(0, 1 << 25), "shape": (1 << 23,)}, "more than it has written"),
]


@pytest.mark.parametrize(("lie", "problem"), OUTPUT_LIES)
def test_a_lie_about_an_output_is_found(
    memory: TensorMemory, lie: dict[str, Any], problem: str
) -> None:
    with pytest.raises(replies.UntrueError, match=problem):
        said(memory, OUTPUTS, outputs=(part(memory, **lie),))


def test_many_outputs_that_are_the_same_bytes_are_no_way_to_fill_the_daemon(
    memory: TensorMemory,
) -> None:
    span = memory.put(bytes(1 << 20))
    parts = tuple(TensorPart(f"{n}", "uint8", (1 << 20,), span) for n in range(60))
    with pytest.raises(replies.UntrueError, match="more than it has written"):
        said(memory, OUTPUTS, outputs=parts)


def test_more_outputs_than_a_model_has_are_a_lie(memory: TensorMemory) -> None:
    parts = tuple(TensorPart(f"{n}", "uint8", (0,), Span(0, 0)) for n in range(65))
    with pytest.raises(replies.UntrueError, match="more than a model has"):
        said(memory, OUTPUTS, outputs=parts)


ANSWER_LIES: list[tuple[Query, dict[str, Any], str]] = [
    (OUTPUTS, {"labels": (ROW,), "confident": (True,)}, "labels that nobody asked for"),
    (LABELS, {"labels": (ROW,)}, "confident of other rows"),
    (LABELS, {"confident": (True,)}, "confident of other rows"),
    (Query("labels", top_k=1), {"labels": (ROW,), "confident": (True,)}, "2 labels where 1"),
    (LABELS, {"labels": ((ScoredLabel(-1, "", 0.5),),), "confident": (True,)}, "without a place"),
    (LABELS, {"labels": ((ScoredLabel(0, "", nan),),), "confident": (True,)}, "or a score"),
    (LABELS, {"labels": ((ScoredLabel(0, "", inf),),), "confident": (True,)}, "or a score"),
    (OUTPUTS, {"timings_ms": {"infer": -1.0}}, "timings"),
    (OUTPUTS, {"timings_ms": {"infer": nan}}, "timings"),
    (OUTPUTS, {"timings_ms": {"infer": 3_600_001.0}}, "timings"),
    (OUTPUTS, {"timings_ms": {"x" * 1000: 1.0}}, "timings"),
]


@pytest.mark.parametrize(("query", "lie", "problem"), ANSWER_LIES)
def test_a_lie_about_an_answer_is_found(
    memory: TensorMemory, query: Query, lie: dict[str, Any], problem: str
) -> None:
    with pytest.raises(replies.UntrueError, match=problem):
        said(memory, query, **lie)


@pytest.mark.parametrize(
    ("query", "names", "problem"),
    [
        (OUTPUTS, ("y", "y"), "twice"),
        (Query("outputs", outputs=("z",)), ("y",), "outputs that nobody asked for"),
    ],
)
def test_outputs_must_be_those_that_were_asked_for(
    memory: TensorMemory, query: Query, names: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(replies.UntrueError, match=problem):
        said(memory, query, outputs=tuple(part(memory, name=one) for one in names))


def test_labels_come_without_outputs(memory: TensorMemory) -> None:
    with pytest.raises(replies.UntrueError, match="nobody asked for"):
        said(memory, LABELS, labels=(ROW,), confident=(True,), outputs=(part(memory),))


@pytest.mark.parametrize("count", [0, 2])
def test_each_query_has_one_answer(memory: TensorMemory, count: int) -> None:
    ran = Ran(1, (Answered((), (), (), {}),) * count)
    with pytest.raises(replies.UntrueError, match=f"gave {count} answers to 1 queries"):
        replies.outcomes(ran, (OUTPUTS,), memory)


LOADED_LIES = [
    None,
    Loaded(nan, True, "1"),
    Loaded(-1.0, True, "1"),
    Loaded(1e308, True, "1"),
    Loaded(1.0, True, "1" * 300),
]


@pytest.mark.parametrize("lie", LOADED_LIES)
def test_a_lie_about_a_load_is_found(lie: Loaded | None) -> None:
    with pytest.raises(replies.UntrueError, match="nothing sensible"):
        replies.checked(lie)
