"""Each query of a batch gets exactly its own answer, or its own refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper

from edge_agent.workers.answer_form import MAX_OPEN_BYTES
from edge_agent.workers.protocol import Answered, Done, Failed, Refused, RunBatch, Span, TensorPart
from tests.agent import models

from . import child_models
from .child_driver import Child

RED, GREEN, BLUE = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
DTYPES = [
    "float32", "float16", "float64", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool",
]  # fmt: skip


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child(memory_limit_mib=512) as one:
        one.ready()
        yield one


@pytest.fixture
def doubling(child: Child) -> str:
    return loaded(child, child_models.doubling())


@pytest.fixture
def colours(child: Child) -> str:
    return loaded(child, child_models.colours())


def loaded(child: Child, model: tuple[models.Yaml, dict[str, bytes]]) -> str:
    report = child.load(*model)
    assert isinstance(report, Done), report
    return str(model[0]["name"])


def rows(*values: Sequence[float]) -> dict[str, Any]:
    return {"x": np.array(values, "f4")}


def refusal(outcome: Answered | Refused) -> tuple[str, str]:
    assert isinstance(outcome, Refused), outcome
    path = f"{outcome.failure.path}: " if outcome.failure.path else ""
    return outcome.failure.kind, path + outcome.failure.message


def best(outcome: Answered | Refused) -> list[str]:
    assert isinstance(outcome, Answered), outcome
    return [row[0].label for row in outcome.labels]


def test_images_become_labels(child: Child, colours: str) -> None:
    photos = [models.png(colour) for colour in (RED, GREEN, BLUE)]
    one = child.item(images=photos[:1], wants="labels")
    other = child.item(images=photos[1:], wants="labels", top_k=3)
    first, second = child.run(colours, one, other)
    assert (best(first), best(second)) == (["red"], ["green", "blue"])
    assert isinstance(first, Answered) and isinstance(second, Answered)
    assert [len(row) for row in first.labels + second.labels] == [2, 3, 3]
    assert first.labels[0][0].score == pytest.approx(1, abs=1e-3)
    assert (first.confident, second.confident) == ((True,), (True, True))
    assert first.outputs == ()
    assert set(first.timings_ms) == {"prepare", "infer", "answer"}
    assert all(value > 0 for value in first.timings_ms.values())


def test_an_unsure_row_is_not_confident(child: Child) -> None:
    document, files = child_models.colours()
    floor = {"min_confidence": 0.9}
    name = loaded(child, (document | {"contract": floor, "name": "acme/sure-colour"}, files))
    photos = [models.png(RED), models.png((99, 99, 99))]
    [outcome] = child.run(name, child.item(images=photos, wants="labels"))
    assert isinstance(outcome, Answered)
    assert outcome.confident == (True, False)


def test_a_classifier_gives_its_scores_where_outputs_are_wanted(child: Child, colours: str) -> None:
    [outcome] = child.run(colours, child.item(images=[models.png(GREEN)]))
    assert child.outputs(outcome)["scores"].tolist() == [[0, pytest.approx(10), 0]]
    assert isinstance(outcome, Answered) and outcome.labels == ()


def test_a_raw_model_gives_its_outputs_where_labels_are_wanted(child: Child, doubling: str) -> None:
    [outcome] = child.run(doubling, child.item(rows([1, 2]), wants="labels"))
    assert child.outputs(outcome)["y"].tolist() == [[2, 4]]


def test_each_gets_its_own_rows(child: Child, doubling: str) -> None:
    given = [[[1, 2]], [[3, 4], [5, 6]], [[7, 8]]]
    outcomes = child.run(doubling, *(child.item(rows(*one)) for one in given))
    for mine, outcome in zip(given, outcomes, strict=True):
        assert child.outputs(outcome)["y"].tolist() == (2 * np.array(mine)).tolist()
    assert len({one.timings_ms["infer"] for one in outcomes if isinstance(one, Answered)}) == 1


@pytest.mark.parametrize("axis", [1, 2])
def test_rows_of_different_sizes_do_not_run_together(child: Child, axis: int) -> None:
    shape = ["N", "H", "W"]
    document = child_models.raw("sized", {"shape": shape}, {"shape": shape})
    node = helper.make_node("Add", ["x", "x"], ["y"])
    ones = models.npy([[[1]]]), models.npy([[[2]]])
    files = dict(zip(("golden/x.npy", "golden/y.npy"), ones, strict=True))
    files["model.onnx"] = models.onnx_file([node], {"x": shape}, {"y": shape})
    name = loaded(child, (child_models.with_golden(document), files))
    given = [np.full([1, *((2, 3) if axis == 1 else (3, 2))], value, "f4") for value in (1, 2)]
    given.append(np.full((2, 4, 4), 3, "f4"))
    outcomes = child.run(name, *(child.item({"x": one}) for one in given))
    for mine, outcome in zip(given, outcomes, strict=True):
        assert child.outputs(outcome)["y"].tolist() == (2 * mine).tolist()


def test_where_rows_mix_each_runs_alone(child: Child) -> None:
    name = loaded(child, child_models.centred())
    outcomes = child.run(name, *(child.item(rows([value, 0])) for value in (1, 2, 3)))
    assert [child.outputs(one)["y"].tolist() for one in outcomes] == [[[0, 0]]] * 3
    assert len({one.timings_ms["infer"] for one in outcomes if isinstance(one, Answered)}) == 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_as_bytes_and_as_json(child: Child, dtype: str) -> None:
    name = loaded(child, child_models.identity(dtype))
    value = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    text = {"b": "[[false,true,true],[true,false,true]]"}.get(value.dtype.kind, "[[0,1,1],[1,0,1]]")
    flat = text.replace("[", "").replace("]", "")
    outcomes = child.run(
        name,
        child.item({"x": value}),
        child.item({"x": child.json_part("x", text, dtype, (2, 3))}),
        child.item({"x": child.json_part("x", f" [{flat}]\n", dtype, (2, 3))}),
    )
    for outcome in outcomes:
        found = child.outputs(outcome)["y"]
        assert (found.dtype.name, found.tolist()) == (dtype, value.tolist())


@pytest.mark.parametrize(
    ("text", "dtype", "words"),
    [
        ("[1, 2", "float32", "not readable JSON"),
        ("[1, 2, 3]", "float32", r"'x': its values have the shape \[3\], not \[1, 2\]"),
        ("[[1], [2]]", "float32", r"shape \[2, 1\], not"),
        ("[[[1, 2]]]", "float32", r"shape \[1, 1, 2\], not"),
        ("[[1, 2], [3]]", "float32", "input 'x': its rows differ"),
        ('["1", "2"]', "float32", "not float32"),
        ("[true, false]", "float32", "not float32"),
        ("[1, 1e39]", "float32", "not finite"),
        ("[1, 256]", "uint8", "input 'x': holds values beyond uint8"),
        ("[-1, 2]", "uint8", "beyond uint8"),
        ("[1.5, 2]", "int32", "not int32"),
        ("[0, 1]", "bool", "not bool"),
        ("[null, 1]", "float32", "not float32"),
        ("", "float32", "not readable JSON"),
    ],
)
def test_json_that_is_no_such_tensor(child: Child, text: str, dtype: str, words: str) -> None:
    x = {"dtype": dtype, "shape": ["N", 2]}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Identity", ["x"], ["y"])
    data = models.onnx_file([node], {"x": ["N", 2]}, {"y": ["N", 2]}, dtype=kind)
    name = loaded(child, (child_models.raw("json", x, x), {"model.onnx": data}))
    good = child.item({"x": np.zeros((1, 2), dtype)})
    bad = child.item({"x": child.json_part("x", text, dtype, (1, 2))})
    found, refused = child.run(name, good, bad)
    assert child.outputs(found)["y"].tolist() == np.zeros((1, 2), dtype).tolist()
    kind_of_error, message = refusal(refused)
    assert kind_of_error == "TensorError"
    assert re.search(words, message), message


def test_a_query_at_fault_fails_alone(child: Child, doubling: str) -> None:
    good = [child.item(rows([place, 0])) for place in range(2)]
    part = child.part("x", np.ones((1, 2), "f4"))
    bad = {
        "TensorError: the request: the input 'x' takes the shape ['N', 2], not [1, 3]": child.item(
            rows([1, 2, 3])
        ),
        "TensorError: the request: the input 'x' takes float32, not float64": child.item(
            {"x": np.ones((1, 2))}
        ),
        "TensorError: the request: the input 'x' holds values that are not finite": child.item(
            rows([np.nan, 1])
        ),
        "TensorError: the request: the input 'x' is missing": child.item(),
        "TensorError: the request: the model has no input 'z'; it takes x": child.item(
            {"z": np.ones((1, 2), "f4")}
        ),
        "TensorError: the request: the input 'x' has 4 bytes, [1, 2] of float32": child.item(
            {"x": TensorPart("x", "float32", (1, 2), Span(0, 4))}
        ),
        "BadInputError: the request: the input 'x' is given twice": child.item(
            {"x": part, "again": part}
        ),
        "BadInputError: the request: the model has no output 'z'; it has y": child.item(
            rows([1, 2]), outputs=("y", "z")
        ),
        "BadInputError: the request: top_k is 0, it starts at 1": child.item(rows([1, 2]), top_k=0),
        "BadInputError: the request: the model acme/doubling takes no image": child.item(
            images=[models.png(RED)]
        ),
    }
    first, *refused, last = child.run(doubling, good[0], *bad.values(), good[1])
    assert child.outputs(first)["y"].tolist() == [[0, 0]]
    assert child.outputs(last)["y"].tolist() == [[2, 0]]
    for words, outcome in zip(bad, refused, strict=True):
        assert ": ".join(refusal(outcome)).startswith(words)


def test_a_damaged_image_fails_alone(child: Child, colours: str) -> None:
    whole = models.png(GREEN)
    items = [child.item(images=images, wants="labels") for images in
             ([whole], [whole[:-20]], [whole, b"none"], [], [whole])]  # fmt: skip
    first, cut, second_of_two, none, last = child.run(colours, *items)
    assert best(first) == best(last) == ["green"]
    assert refusal(cut)[0] == "ImageError"
    assert refusal(second_of_two)[1].startswith("the request, image 2: not an image")
    assert refusal(none)[1] == "the request: the input 'image' is missing"


def test_a_model_for_one_image_takes_one(child: Child) -> None:
    name = loaded(child, (models.COLOUR, {}))
    one, two = ([models.png(RED)], [models.png(RED), models.png(BLUE)])
    items = [child.item(images=images, wants="labels") for images in (one, two)]
    found, refused = child.run(name, *items)
    assert best(found) == ["red"]
    assert refusal(refused)[0] == "BadInputError"
    assert "takes one image at a time" in refusal(refused)[1]


def test_what_the_engine_fails_over_fails_alone(child: Child) -> None:
    name = loaded(child, child_models.lookup())
    given = [np.array(one) for one in ([1], [2, 0], [9], [2])]
    first, second, poison, last = child.run(name, *(child.item({"x": one}) for one in given))
    assert child.outputs(first)["y"].tolist() == [[10, 11]]
    assert child.outputs(second)["y"].tolist() == [[20, 21], [0, 0]]
    assert child.outputs(last)["y"].tolist() == [[20, 21]]
    assert refusal(poison)[0] in ("TensorError", "EngineFailedError")


def test_memory_that_is_not_there_is_the_models_fault(child: Child) -> None:
    name = loaded(child, child_models.greedy())
    given = [np.array([count]) for count in (10, 1 << 29, 10)]
    first, greedy, last = child.run(name, *(child.item({"x": one}) for one in given))
    assert child.outputs(first)["y"].tolist() == child.outputs(last)["y"].tolist() == [0]
    assert refusal(greedy)[0] == "EngineFailedError"


def test_outputs_that_are_wanted(child: Child) -> None:
    document = child_models.raw("several", {"shape": [2]}, {"shape": [2]})
    document["outputs"] += [{"name": "z", "dtype": "float32", "shape": []}]
    nodes = [
        helper.make_node("Identity", ["x"], ["y"]),
        helper.make_node("ReduceSum", ["x"], ["z"], keepdims=0),
    ]
    files = {"model.onnx": models.onnx_file(nodes, {"x": [2]}, {"y": [2], "z": []})}
    name = loaded(child, (document, files))
    wanted: list[tuple[str, ...]] = [(), ("z",), ("z", "y", "z")]
    x = np.array([1, 2], "f4")
    outcomes = child.run(name, *(child.item({"x": x}, outputs=names) for names in wanted))
    found = [child.outputs(one) for one in outcomes]
    assert [list(one) for one in found] == [["y", "z"], ["z"], ["z", "y"]]
    assert [float(one["z"]) for one in found] == [3, 3, 3]
    assert found[0]["z"].shape == ()


def test_truth_values_are_one_or_zero(child: Child) -> None:
    name = loaded(child, child_models.identity("bool"))
    span = child.memory.put(b"\0\1\2")
    [outcome] = child.run(name, child.item({"x": TensorPart("x", "bool", (1, 3), span)}))
    assert refusal(outcome) == (
        "TensorError",
        "the request: the input 'x' holds bytes that are neither 0 nor 1",
    )


def test_outputs_that_the_memory_does_not_hold(child: Child) -> None:
    document = child_models.raw("wide", {"shape": ["N", 1]}, {"shape": ["N", 1 << 20]})
    row = helper.make_tensor("row", 1, [1, 1 << 20], bytes(4 << 20), raw=True)
    node = helper.make_node("Add", ["x", "row"], ["y"])
    shapes: tuple[Any, Any] = {"x": ["N", 1]}, {"y": ["N", 1 << 20]}
    name = loaded(child, (document, {"model.onnx": models.onnx_file([node], *shapes, [row])}))
    far = TensorPart("x", "float32", (1, 1), Span(child.memory.size - 64, 4))
    small, outcome = child.run(name, child.item(rows([1])), child.item({"x": far}))
    for one in (small, outcome):
        assert refusal(one)[0] == "BadInputError"
        assert "more than the 1024 MiB" in refusal(one)[1]


def test_outputs_that_an_answer_may_not_have(child: Child) -> None:
    document = child_models.raw("long", {"dtype": "int64", "shape": [1]}, {"shape": ["length"]})
    node = helper.make_node("ConstantOfShape", ["x"], ["y"])
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.INT64, [1])]
    graph = helper.make_graph([node], "long", inputs, [value("y", TensorProto.FLOAT, ["n"])])
    name = loaded(child, (document, {"model.onnx": child_models.serialised(graph)}))
    most = MAX_OPEN_BYTES // 4
    given = [np.array([count]) for count in (most, most + 1)]
    whole, longer = child.run(name, *(child.item({"x": one}) for one in given))
    assert child.outputs(whole)["y"].shape == (most,)
    assert refusal(longer) == (
        "BadInputError",
        f"the request: its outputs take {MAX_OPEN_BYTES + 4} bytes, the limit is {MAX_OPEN_BYTES}",
    )
    child.unload(name)  # with the memory that its engine keeps


def test_an_empty_batch(child: Child, doubling: str) -> None:
    assert child.run(doubling) == ()


def test_an_answer_that_no_message_holds(child: Child) -> None:
    document, files = child_models.colours()
    document = models.changed(document, "outputs.0.shape", ["batch", 300])
    document = models.changed(document, "name", "acme/many-colour")
    document = models.changed(document, "golden", ...)
    labels = [f"{place:04000}" for place in range(300)]
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "rows"], ["column"]),
        helper.make_node("Mul", ["column", "factors"], ["scores"]),
    ]
    weights = [
        helper.make_tensor("rows", TensorProto.INT64, [2], [-1, 1]),
        helper.make_tensor("factors", TensorProto.FLOAT, [300], [1.0] * 300),
    ]
    shapes: tuple[Any, Any] = {"image": ["b", 3, 8, 8]}, {"scores": ["b", 300]}
    files["model.onnx"] = models.onnx_file(nodes, *shapes, weights)
    files["labels.json"] = msgspec.json.encode(labels)
    name = loaded(child, (document, files))
    image = np.zeros((8, 3, 8, 8), "f4")  # 9.6 million bytes of labels
    item = child.item({"image": image}, wants="labels", top_k=300)
    report = child.ask(RunBatch(child.next_id(), name, (item,)))
    assert isinstance(report, Failed)
    assert report.failure.kind == "BadInputError"
    assert report.failure.message == "the answer is too large"
    one = child.item({"image": image[:1]}, wants="labels", top_k=1)
    assert best(child.run(name, one)[0]) == [labels[0]]
