"""`quick_json` reads and writes what ``json`` does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.cli import quick_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_writes_what_json_writes(value: object) -> None:
    text = quick_json.encode(value)
    assert text == json.dumps(value)
    assert quick_json.decode(text) == json.loads(text)


@given(VALUES, st.sampled_from([None, 1, "\t"]))
def test_reads_what_json_reads(value: object, indent: int | str | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert quick_json.decode(text) == value


@pytest.mark.parametrize("text", ["", " ", "{", '{"a"}', "[1,]", "1 2", "x", "'a'", "[" * 100_000])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        quick_json.decode(text)


def test_what_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        quick_json.encode({"a": {1}})
