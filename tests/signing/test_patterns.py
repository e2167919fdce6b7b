from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_signing.errors import KeyringError
from edge_signing.patterns import check_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "name", "answer"),
    [
        ("acme/det", "acme/det", True),
        ("acme/det", "acme/dets", False),
        ("acme/det", "acme/de", False),
        ("acme/*", "acme/det", True),
        ("acme/*", "acme/det/large", False),
        ("acme/*", "acme", False),
        ("acme/*", "acmee/det", False),
        ("acme/*", "evil/acme/det", False),
        ("*", "det", True),
        ("*", "acme/det", False),
        ("*/*", "acme/det", True),
        ("*/det", "acme/det", True),
        ("*/det", "acme/x/det", False),
        ("acme*", "acme", True),
        ("acme*", "acme-labs", True),
        ("acme*", "acme/det", False),
        ("acme/det-*", "acme/det-v2", True),
        ("acme/*-v2", "acme/det-v2", True),
        ("acme/d*t", "acme/dt", True),
        ("acme/d*t", "acme/d", False),
        ("acme/aa*aa", "acme/aaa", False),
        ("acme/a*b*c", "acme/axxbyyc", True),
        ("acme/a*b*c", "acme/axxcyyb", False),
        ("acme/a*ab*b", "acme/aab", False),
        ("a.c", "abc", False),
        ("a.c", "a.c", True),
    ],
)
def test_matching(pattern: str, name: str, answer: bool) -> None:
    check_pattern(pattern, "here")
    assert matches(pattern, name) is answer


@pytest.mark.parametrize(
    "pattern",
    ["", "/", "a/", "/a", "a//b", "a?", "a[b]", "**", "acme/**", "A", "a b", "a\n", "é", "a" * 129],
)
def test_bad_patterns(pattern: str) -> None:
    with pytest.raises(KeyringError) as caught:
        check_pattern(pattern, "rules[3].bundles")
    assert caught.value.path == "rules[3].bundles"


@given(st.text("ab*/", max_size=12), st.text("ab/", max_size=12))
def test_agrees_with_a_regular_expression(pattern: str, name: str) -> None:
    expression = "[^/]*".join(re.escape(piece) for piece in pattern.split("*"))
    assert matches(pattern, name) is bool(re.fullmatch(expression, name))


def test_a_hostile_pattern_takes_no_time() -> None:
    pattern, name = "a*" * 63 + "b", "a" * 127
    begin = time.perf_counter()
    for _ in range(100):
        assert not matches(pattern, name)
    assert time.perf_counter() - begin < 1
