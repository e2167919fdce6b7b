"""Which queries may run together, and how large they are."""

from __future__ import annotations

import pytest

from edge_agent.calls import InputTensor, Query, Wants, size_of_inputs
from edge_agent.scheduler import grouping


def tensor(
    name: str = "x",
    dtype: str = "uint8",
    shape: tuple[int, ...] = (1, 2),
    data: bytes = b"01",
    is_json: bool = False,
) -> InputTensor:
    return InputTensor(name, dtype, shape, data, is_json)


def asked(
    *tensors: InputTensor,
    wants: Wants = "labels",
    images: tuple[bytes, ...] = (),
    top_k: int | None = None,
    outputs: tuple[str, ...] = (),
) -> Query:
    return Query(wants, tensors, images, top_k, outputs)


PLAIN = asked(tensor())


@pytest.mark.parametrize(
    ("other", "together"),
    [
        pytest.param(asked(tensor(data=b"23")), True, id="other values"),
        pytest.param(asked(tensor(shape=(3, 2))), True, id="other number of rows"),
        pytest.param(asked(tensor(data=b"[2,3]", is_json=True)), True, id="JSON"),
        pytest.param(asked(tensor(name="y")), False, id="other name"),
        pytest.param(asked(tensor(dtype="int8")), False, id="other dtype"),
        pytest.param(asked(tensor(shape=(1, 2, 1))), False, id="other rank"),
        pytest.param(asked(tensor(shape=(1, 3))), False, id="other shape"),
        pytest.param(asked(tensor(), tensor(name="y")), False, id="more inputs"),
        pytest.param(asked(tensor(), wants="outputs"), False, id="wants something else"),
        pytest.param(asked(tensor(), outputs=("z",)), False, id="other outputs"),
        pytest.param(asked(tensor(), top_k=3), False, id="other top_k"),
        pytest.param(asked(tensor(), images=(b"1",)), False, id="an image too"),
        pytest.param(asked(images=(b"1",)), False, id="an image instead"),
    ],
)
def test_who_may_run_together(other: Query, together: bool) -> None:
    assert (grouping.group_key(PLAIN) == grouping.group_key(other)) is together
    assert grouping.group_key(other) is not None


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (asked(), 1),
        (asked(tensor(shape=())), 1),
        (asked(tensor(shape=(0, 2))), 0),
        (asked(tensor(shape=(2, 2)), tensor("y", shape=(3, 2))), 2),
        (asked(tensor(shape=(2, 2)), tensor("y", shape=())), 2),
        (asked(tensor(shape=(2, 2)), images=(b"",)), 1),
    ],
)
def test_what_has_no_certain_number_of_rows_runs_alone(query: Query, rows: int) -> None:
    assert grouping.group_key(query) is None
    assert grouping.rows(query) == max(1, rows)


def test_images_are_rows() -> None:
    one, three = asked(images=(b"a",)), asked(images=(b"a", b"bc", b"d"))
    assert grouping.group_key(one) == grouping.group_key(three)
    assert (grouping.rows(three), size_of_inputs(three)) == (3, 4)


def test_bytes_are_counted_whatever_holds_them() -> None:
    view = memoryview(bytes(8)).cast("H")
    assert size_of_inputs(Query("labels", (InputTensor("x", "uint16", (4,), view),))) == 8
