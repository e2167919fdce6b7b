"""What a worker may say of a batch, and every way to lie about it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan, prod
from typing import Any

import pytest
from msgspec import structs

from edge_agent import model_yaml
from edge_agent.calls import Answer, InputTensor, Query
from edge_agent.types import ScoredLabel
from edge_agent.workers import replies
from edge_agent.workers.answer_form import MAX_OPEN_BYTES, AnswerForm, OutputForm, answer_form
from edge_agent.workers.protocol import Answered, Ran, Span, TensorPart
from edge_agent.workers.tensor_memory import TensorMemory
from edge_agent.workers.work import Loaded
from tests.agent import models

OUTPUTS, LABELS = Query("outputs"), Query("labels", images=(b"one", b"two"), top_k=2)
# Two outputs of any shape, and a classifier of three classes.
OPEN = AnswerForm(
    {
        "y": OutputForm("float32", (None, None), 4, True),
        "z": OutputForm("uint8", (None,), 1, True),
    },
    frozenset({"y", "z"}),
)
ROWS = answer_form(model_yaml.parse(models.text(models.ROWS)))
PAIR = answer_form(model_yaml.parse(models.text(models.PAIR)))
COLOUR = answer_form(model_yaml.parse(models.text(models.COLOUR)))
SCORES = structs.replace(COLOUR, has_batch_axis=True)
ROW = (ScoredLabel(1, "cat", 0.75), ScoredLabel(0, "dog", 0.25))


@pytest.fixture
def memory() -> Iterator[TensorMemory]:
    one = TensorMemory.create(1 << 26)
    yield one
    one.close()


def part(memory: TensorMemory, **changed: Any) -> TensorPart:
    span = memory.put(bytes(range(24)))
    return structs.replace(TensorPart("y", "float32", (2, 3), span), **changed)


def said(memory: TensorMemory, query: Query, form: AnswerForm, **changed: Any) -> Answer:
    whole = Answered((), (), (), {"infer": 1.0})
    ran = Ran(1, (structs.replace(whole, **changed),))
    (one,) = replies.outcomes(ran, (query,), form, memory)
    assert isinstance(one, Answer)
    return one


def test_outputs_are_copied(memory: TensorMemory) -> None:
    parts = (part(memory), part(memory, name="z", dtype="uint8", shape=(24,)))
    for query in (Query("outputs", outputs=("z", "y", "z")), OUTPUTS, Query("labels")):
        answer = said(memory, query, OPEN, outputs=parts)
        assert [one.data for one in answer.outputs] == [bytes(range(24))] * 2
        assert [(one.name, one.dtype, one.shape) for one in answer.outputs] == [
            ("y", "float32", (2, 3)),
            ("z", "uint8", (24,)),
        ]
    memory.reset()
    memory.put(bytes(100))
    assert [one.data for one in answer.outputs] == [bytes(range(24))] * 2


def test_scalars_and_empty_tensors_are_outputs(memory: TensorMemory) -> None:
    forms = {
        "y": OutputForm("float32", (), 4, False),
        "z": OutputForm("float32", (None, 8), 4, True),
    }
    scalar = part(memory, shape=(), span=memory.put(bytes(4)))
    empty = part(memory, name="z", shape=(0, 8), span=Span(0, 0))
    form = AnswerForm(forms, frozenset(forms))
    answer = said(memory, OUTPUTS, form, outputs=(scalar, empty))
    assert [len(one.data) for one in answer.outputs] == [4, 0]


def test_labels_are_taken(memory: TensorMemory) -> None:
    answer = said(memory, LABELS, SCORES, labels=(ROW, ROW), confident=(True, False))
    assert answer.labels == (ROW, ROW)
    assert answer.confident == (True, False)
    assert answer.timings_ms == {"infer": 1.0}


def test_a_query_without_rows_has_no_labels(memory: TensorMemory) -> None:
    none = Query("labels", (InputTensor("image", "float32", (0, 3, 8, 8), b""),))
    empty = TensorPart("scores", "float32", (0, 3), Span(0, 0))
    form = structs.replace(
        SCORES, outputs={"scores": OutputForm("float32", (None, 3), 4, is_open=True)}
    )
    assert said(memory, none, form, outputs=(empty,)).labels == ()


OUTPUT_LIES = [
    ({"dtype": "float64"}, "model can't have"),
    ({"dtype": "object"}, "model can't have"),
    ({"dtype": "O" * 10_000}, "model can't have"),
    ({"shape": (2, 2)}, "24 bytes for float32"),
    ({"shape": (2, 3, 1)}, "model can't have"),
    ({"shape": (6,)}, "model can't have"),
    ({"shape": (1,) * 10_000}, "model can't have"),
    ({"shape": (2**62, 2**62)}, "24 bytes for float32"),
    ({"shape": (2**62, 0), "span": Span(0, 0)}, "the limit is"),
    ({"name": ""}, "other outputs"),
    ({"name": "x" * 10_000}, "other outputs"),
    ({"name": "z"}, "other outputs"),
    ({"is_json": True}, "24 bytes"),
    ({"span": Span(0, 20)}, "20 bytes"),
    ({"span": Span(1 << 26, 24)}, "outside of the shared memory"),
    ({"span": Span((1 << 26) - 23, 24)}, "outside of the shared memory"),
    ({"span": Span(2**63, 24)}, "outside of the shared memory"),
    ({"span": Span(0, 2**62), "shape": (2**60, 1)}, "more than it has written"),
    ({"span": Span(0, 1 << 25), "shape": (1 << 23, 1)}, "more than it has written"),
]


@pytest.mark.parametrize(("lie", "problem"), OUTPUT_LIES)
def test_a_lie_about_an_output_is_found(
    memory: TensorMemory, lie: dict[str, Any], problem: str
) -> None:
    with pytest.raises(replies.UntrueError, match=problem) as told:
        said(memory, Query("outputs", outputs=("y",)), OPEN, outputs=(part(memory, **lie),))
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("form", [PAIR, ROWS], ids=["fixed axes", "a row for each of the query's"])
@pytest.mark.parametrize("shape", [(2, 4), (1 << 24, 1), (2**62, 0), (1, 3), (1,), ()])
def test_an_output_has_the_shape_that_the_model_gives_it(
    memory: TensorMemory, form: AnswerForm, shape: tuple[int, ...]
) -> None:
    query = Query("outputs", (InputTensor("x", "float32", (1, 2), bytes(8)),))
    (name,), size = form.names, 4 * prod(shape)
    right = (1, 4 if form is PAIR else 2)
    true = TensorPart(name, "float32", right, memory.put(bytes(4 * right[1])))
    assert said(memory, query, form, outputs=(true,)).outputs[0].shape == right
    lie = TensorPart(name, "float32", shape, memory.put(bytes(min(size, 1 << 20))))
    with pytest.raises(replies.UntrueError):
        said(memory, query, form, outputs=(structs.replace(lie, span=Span(0, size)),))


def test_what_no_description_bounds_is_bounded_all_the_same(memory: TensorMemory) -> None:
    names = frozenset({"y", "w"})
    form = AnswerForm(dict.fromkeys(names, OPEN.outputs["y"]), names)
    half = MAX_OPEN_BYTES // 2 // 4
    y, w = (TensorPart(name, "float32", (half, 0), Span(0, 0)) for name in ("y", "w"))
    assert len(said(memory, OUTPUTS, form, outputs=(y, w)).outputs) == 2
    with pytest.raises(replies.UntrueError, match="the limit is"):
        said(memory, OUTPUTS, form, outputs=(structs.replace(y, shape=(half + 1, 0)), w))


def test_many_outputs_that_are_the_same_bytes_are_no_way_to_fill_the_daemon(
    memory: TensorMemory,
) -> None:
    span = memory.put(bytes(1 << 20))
    parts = tuple(TensorPart(f"{n}", "uint8", (1 << 20,), span) for n in range(60))
    form = OutputForm("uint8", (1 << 20,), 1, is_open=False)
    names = frozenset(part.name for part in parts)
    with pytest.raises(replies.UntrueError, match="more than it has written"):
        said(memory, OUTPUTS, AnswerForm(dict.fromkeys(names, form), names), outputs=parts)


RANKED = {"labels": (ROW, ROW), "confident": (True, True)}
ANSWER_LIES: list[tuple[Query, dict[str, Any], str]] = [
    (OUTPUTS, RANKED, "labels that nobody asked for"),
    (LABELS, {}, "0 rows of labels to 2"),
    (LABELS, {"labels": (ROW,), "confident": (True,)}, "1 rows of labels to 2"),
    (LABELS, {"labels": (ROW,) * 10**6}, "1000000 rows of labels to 2"),
    (LABELS, {"labels": (ROW, ())}, "0 labels where 2"),
    (LABELS, {"labels": (ROW, ROW)}, "confident of other rows"),
    (LABELS, {"labels": (ROW, ROW), "confident": (True,) * 10**6}, "confident of other rows"),
    (structs.replace(LABELS, top_k=1), RANKED, "2 labels where 1"),
    (structs.replace(LABELS, top_k=None), {"labels": (ROW, ROW + ROW)}, "4 labels where 2"),
    (structs.replace(LABELS, top_k=1000), {"labels": (ROW, ROW + ROW)}, "4 labels where 3"),
    (LABELS, {"labels": (ROW, (ScoredLabel(-1, "", 0.5),))}, "without a place"),
    (LABELS, {"labels": (ROW, (ScoredLabel(3, "", 0.5),))}, "without a place"),
    (LABELS, {"labels": (ROW, (ScoredLabel(0, "", nan),))}, "or a score"),
    (LABELS, {"labels": (ROW, (ScoredLabel(0, "", inf),))}, "or a score"),
    (LABELS, RANKED | {"timings_ms": {"infer": -1.0}}, "timings"),
    (LABELS, RANKED | {"timings_ms": {"infer": nan}}, "timings"),
    (LABELS, RANKED | {"timings_ms": {"infer": 3_600_001.0}}, "timings"),
    (LABELS, RANKED | {"timings_ms": {"x" * 1000: 1.0}}, "timings"),
]


@pytest.mark.parametrize(("query", "lie", "problem"), ANSWER_LIES)
def test_a_lie_about_an_answer_is_found(
    memory: TensorMemory, query: Query, lie: dict[str, Any], problem: str
) -> None:
    with pytest.raises(replies.UntrueError, match=problem):
        said(memory, query, SCORES, **lie)


def test_a_model_without_a_batch_axis_has_one_row_of_labels(memory: TensorMemory) -> None:
    query = Query("labels", images=(b"one",))
    assert said(memory, query, COLOUR, labels=(ROW,), confident=(True,)).labels == (ROW,)
    with pytest.raises(replies.UntrueError, match="2 rows of labels to 1"):
        said(memory, query, COLOUR, labels=(ROW, ROW), confident=(True, True))


def test_a_model_without_classes_has_no_labels(memory: TensorMemory) -> None:
    with pytest.raises(replies.UntrueError, match="labels that nobody asked for"):
        said(memory, Query("labels"), PAIR, labels=(ROW,), confident=(True,))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (OUTPUTS, ("y", "y")),
        (OUTPUTS, ("y",)),
        (OUTPUTS, ()),
        (Query("outputs", outputs=("z",)), ("y",)),
        (Query("outputs", outputs=("z", "y")), ("y",)),
        (Query("outputs", outputs=("y",)), ("y", "z")),
        (Query("outputs", outputs=("x",)), ()),
    ],
)
def test_outputs_must_be_those_that_were_asked_for(
    memory: TensorMemory, query: Query, names: tuple[str, ...]
) -> None:
    with pytest.raises(replies.UntrueError, match="other outputs than"):
        said(memory, query, OPEN, outputs=tuple(part(memory, name=one) for one in names))


def test_a_worker_makes_no_output_of_the_callers_words(memory: TensorMemory) -> None:
    with pytest.raises(replies.UntrueError, match="model can't have"):
        said(memory, Query("outputs", outputs=("x",)), OPEN, outputs=(part(memory, name="x"),))


def test_labels_come_without_outputs(memory: TensorMemory) -> None:
    with pytest.raises(replies.UntrueError, match="beside labels"):
        said(memory, LABELS, SCORES, **RANKED, outputs=(part(memory),))


@pytest.mark.parametrize("count", [0, 2])
def test_each_query_has_one_answer(memory: TensorMemory, count: int) -> None:
    ran = Ran(1, (Answered((), (), (), {}),) * count)
    with pytest.raises(replies.UntrueError, match=f"gave {count} answers to 1 queries"):
        replies.outcomes(ran, (OUTPUTS,), OPEN, memory)


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
