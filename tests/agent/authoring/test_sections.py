"""Changing one section of a model.yaml leaves every other byte."""

from __future__ import annotations

from typing import Any

import pytest

from edge_agent import yaml_subset
from edge_agent.authoring import sections
from edge_agent.errors import DescriptionError

TEXT = b"""# head
schema: x
# about the name
name: acme/x   # here
list:
- a
- b

# about the rest
rest: {kind: raw}
"""


def test_scalars_stand_on_lines_of_their_own() -> None:
    assert sections.to_yaml({"a": "x", "b": 1, "c": None}) == b"a: x\nb: 1\nc: null\n"
    assert sections.to_yaml({"p": {"kind": "raw"}}) == b"p: {kind: raw}\n"


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("schema", "y", "schema: y"), ("list", ["c"], "list: [c]"),
        ("rest", {"kind": "other"}, "rest: {kind: other}"), ("new", "sha256:00", "new: sha256:00"),
        ("new", {"a": [{"b": 1}, {"c": "d: e"}]}, "new:"),
    ],
)  # fmt: skip
def test_replaced(key: str, value: Any, line: str) -> None:
    made = sections.replace(TEXT, key, value)
    assert yaml_subset.load(made)[0] == yaml_subset.load(TEXT)[0] | {key: value}
    lines = made.decode().splitlines()
    assert line in lines
    for kept in ("# head", "# about the name", "# about the rest"):
        assert kept in lines


def test_removed() -> None:
    made = sections.replace(TEXT, "list", None)
    assert b"- a" not in made
    assert b"# about the rest\nrest" in made
    assert sections.replace(TEXT, "nothing", None) == TEXT


@pytest.mark.parametrize("text", [b"{a: 1, b: 2}", b"- a\n", b'"a": 1\n', b"? a\n: 1\n"])
def test_another_style_is_refused_not_spoilt(text: bytes) -> None:
    with pytest.raises(DescriptionError):
        sections.replace(text, "a", 3)
