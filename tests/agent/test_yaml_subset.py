"""What of YAML is read, and that nothing else is."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import DescriptionError
from edge_agent.yaml_subset import MAX_BYTES, MAX_DEPTH, load

SCALARS: dict[str, Any] = {
    "null": None, "~": None, "": None, "true": True, "FALSE": False, "True": True,
    "0": 0, "-17": -17, "+3": 3, "010": 10, "999999999999999999": 10**18 - 1,
    "1.5": 1.5, "-1e3": -1000.0, ".5": 0.5, "3.": 3.0, "1e-400": 0.0,
    # Numbers that Python's int would cut or that YAML 1.1 reads otherwise stay what they are.
    "1000000000000000000": 1e18, "yes": "yes", "off": "off", "1:30": "1:30", "1_000": "1_000",
    "0x1F": "0x1F", "0o17": "0o17", ".inf": ".inf", ".nan": ".nan", "1.0.0": "1.0.0",
    "2001-01-01": "2001-01-01", "NO": "NO", "=": "=", "<<": "<<", "\uff11\uff12": "\uff11\uff12",
    "'5'": "5", '"true"': "true", "'null'": "null",
}  # fmt: skip

REFUSED = {
    b"a: &x 1\nb: *x": (1, "aliases and anchors"),
    b"a: 1\nb: *x": (2, "aliases and anchors"),
    b"a:\n  - &x {b: 1}": (2, "aliases and anchors"),
    b"&x a: 1": (1, "aliases and anchors"),
    b"a: 1\n*a : 2": (2, "aliases and anchors"),
    b"a: !!python/object/apply:os.system [id]": (1, "tag"),
    b"a: !!str 1": (1, "tag"),
    b"a: ! 1": (1, "tag"),
    b"a: 1\nb: !x%1b%5b31m 1": (2, r"tag '!x\x1b[31m'"),
    b"a: 1\nb: 2\na: 3": (3, "the key 'a' stands here twice"),
    b"{a: 1, 'a': 1}": (1, "twice"),
    b"a: 1\n1: 2": (2, "the key 1 is not a string"),
    b"? {a: b}\n: 1": (1, "is not a string"),
    b"null: 2": (1, "is not a string"),
    b"? [a]\n: 1": (1, "is not a string"),
    b"a: 1\n---\nb: 2": (2, "more than one document"),
    b"a: [1": (1, "not valid YAML"),
    b"a: 1\n  b: 2": (2, "not valid YAML"),
    b"\ta: 1": (1, "not valid YAML"),
    b"a: 1\nb: 1e999": (2, "too large"),
    b"a: -1e999": (1, "too large"),
    b"a: 1\n%YAML 1.2": (2, "not valid YAML"),
    b"": (None, "is empty"),
    b"# nothing": (None, "is empty"),
    b"a: \xff": (None, "not UTF-8"),
    b"a: \x00": (None, "not valid YAML"),
    b"a: \x1b": (None, "not valid YAML"),
    "a: 1".encode("utf-16"): (None, "not UTF-8"),
}


@pytest.mark.parametrize("text", SCALARS)
def test_scalars(text: str) -> None:
    value = load(f"a: {text}\n".encode())[0]["a"]
    assert (value, type(value)) == (SCALARS[text], type(SCALARS[text]))


@pytest.mark.parametrize("data", REFUSED)
def test_refused(data: bytes) -> None:
    line, words = REFUSED[data]
    with pytest.raises(DescriptionError) as caught:
        load(data)
    assert words in str(caught.value)
    assert caught.value.line == line
    assert str(caught.value).isprintable()


def test_a_line_for_every_value() -> None:
    value, lines = load(b"a: 1\nb:\n  - c: x\n    d:\n      [1,\n       2]\n  - e\n")
    assert value == {"a": 1, "b": [{"c": "x", "d": [1, 2]}, "e"]}
    assert lines == {
        "$": 1, "$.a": 1, "$.b": 2, "$.b[0]": 3, "$.b[0].c": 3, "$.b[0].d": 4,
        "$.b[0].d[0]": 5, "$.b[0].d[1]": 6, "$.b[1]": 7,
    }  # fmt: skip


@pytest.mark.parametrize("size", [MAX_BYTES, MAX_BYTES + 1])
def test_the_limit_on_bytes(size: int) -> None:
    data = b"a: ".ljust(size, b"x")
    if size > MAX_BYTES:
        with pytest.raises(DescriptionError, match=f"is {size} bytes, the limit is {MAX_BYTES}"):
            load(data)
    else:
        assert load(data)[0] == {"a": "x" * (size - 3)}


@pytest.mark.parametrize(("left", "right"), [("[", "]"), ("{a: ", "}"), ("[{a: ", "}]")])
def test_the_limit_on_depth(left: str, right: str) -> None:
    levels = MAX_DEPTH // len(left.replace("a: ", ""))
    load((left * levels + "1" + right * levels).encode())
    with pytest.raises(DescriptionError, match="nested deeper than 16"):
        load((left * (levels + 1) + "1" + right * (levels + 1)).encode())


@pytest.mark.parametrize(
    "piece", ["[", "{", "- ", "? ", "{a: ", "[{", "a: {", "&a ", "!", "%", "'", "| ", "[a, ", "{?"]
)
def test_a_whole_file_of_one_trick_ends_soon(piece: str) -> None:
    data = (piece * (MAX_BYTES // len(piece) - 1)).encode()
    started = perf_counter()
    with pytest.raises(DescriptionError):
        load(data)
    assert perf_counter() - started < 5


def test_a_byte_order_mark_and_line_ends_of_windows() -> None:
    value, lines = load(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert (value, lines["$.b"]) == ({"a": 1, "b": "x"}, 2)


_PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=8)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | _FLOATS | _PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_PLAIN, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(_PLAIN, _VALUES, max_size=4), st.sampled_from([None, 2]))
def test_json_is_read_as_json(value: dict[str, Any], indent: int | None) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    assert load(data)[0] == value


@settings(max_examples=150, deadline=None)
@given(st.text("[]{}:,-?&*!|>'\"%@`# \n\tab1~<", max_size=40))
def test_anything_else_is_refused_with_one_type_of_error(text: str) -> None:
    try:
        value, lines = load(text.encode())
    except DescriptionError:
        return
    assert lines["$"] >= 1
    assert isinstance(value, dict | list | str | int | float | None)
