"""What a format refuses, in words: the place, what is wrong, and what is allowed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edge_agent.description import PATTERN_WORDS, ModelDescription
from edge_agent.formats import complaint, kinds
from edge_agent.serve_config import _PATTERN_WORDS, CacheConfig, ServeConfig, table
from edge_agent.serving import desired

SERVE: dict[str, tuple[object, str]] = {
    "choice": ({"log_level": "loud"}, "log_level: must be one of debug, error, info, warning, not"),
    "no text": ({"log_level": 5}, "log_level: must be one of debug, error, info, warning, not 5"),
    "key": ({"classes": {"x": {}}}, "classes: the name 'x' must be one of bulk, critical, high,"),
    "deep choice": (
        {"tenants": {"uid:1": {"highest_class": "top"}}},
        "tenants.NAME.highest_class: must be one of bulk, critical, high, normal",
    ),
    "path": (
        {"tcp": {"port": 1, "tokens_file": "tokens"}},
        "tcp.tokens_file: must be an absolute path, which begins with /; 4096 characters at most, "
        "not 'tokens'",
    ),
    "missing": ({"tcp": {}}, "tcp: the key 'port' is missing"),
    "most": ({"tcp": {"port": 70000}}, "tcp.port: must be a whole number from 0 to 65535, not"),
    "fraction": ({"age_s": 0}, "age_s: must be a number from 0.01 to 3600, not 0"),
    "truth": (
        {"models": {"a": {"isolated": 1}}}, "models.NAME.isolated: must be true or false",
    ),
    "list": ({"classes": {"bulk": {"cpus": 3}}}, "classes.NAME.cpus: must be a list"),
    "entry": ({"classes": {"bulk": {"cpus": [-1]}}}, "classes.NAME.cpus[0]: must be a whole"),
    "table": ({"tcp": 5}, "tcp: must be a table, not 5"),
    "empty": ({"socket_group": ""}, "socket_group: must be a text of 1 to 128 characters, not ''"),
    "unknown": (
        {"models": {"a": {"x": 1}}},
        "models.NAME: unknown key 'x'; known are weight, isolated, max_batch",
    ),
    "hostile": ({"x` - at `$.tcp`": 1}, ": unknown key 'x` - at `$.tcp`'; known are log_level,"),
    "own rule": ({"memory_low_percent": 99}, ": memory_low_percent is above memory_high_percent"),
    "all of it": (5, ": must be a table, not 5"),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVE)
def test_says_where_and_what_is_allowed(name: str) -> None:
    value, words = SERVE[name]
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, ServeConfig)
    found = complaint(str(caught.value), ServeConfig, value, _PATTERN_WORDS)
    assert f"{found.place}: {found.message}".startswith(words)


@pytest.mark.parametrize("tenant", ["camera", "uid:me", "uid:", "token:", "token:a b", "user:1"])
def test_a_tenant_that_nobody_can_be(tenant: str) -> None:
    value: dict[str, Any] = {
        "tenants": {"uid:1000": {}, "cert:gate 2": {}, "token:cam": {}, tenant: {}}
    }
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, ServeConfig)
    found = complaint(str(caught.value), ServeConfig, value, _PATTERN_WORDS)
    assert found.message.startswith(
        f"the name '{tenant}' must be uid:NUMBER, token:NAME or cert:NAME, in quotation marks"
    )


def test_tenants_that_may_come() -> None:
    names = {"uid:0", "token:cam-1", "cert:gate 2"}
    assert table("serve", {"tenants": {one: {} for one in names}}, "").tenants.keys() == names


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ServeConfig, _PATTERN_WORDS),
        (CacheConfig, _PATTERN_WORDS),
        (desired.Desired, desired.PATTERNS_IN_WORDS),
        (ModelDescription, PATTERN_WORDS),
    ],
)
def test_every_pattern_of_a_format_has_words(kind: Any, words: dict[str, str]) -> None:
    assert set(_patterns(kinds(kind, "$"))) <= words.keys()


def _patterns(found: Any) -> Any:
    """Yields all patterns in msgspec's description of a format."""
    if isinstance(found, list | tuple):
        for one in found:
            yield from _patterns(one)
    elif isinstance(found, msgspec.inspect.Field):
        yield from _patterns(found.type)
    elif isinstance(found, msgspec.inspect.StrType):
        yield from [found.pattern] if found.pattern else []
    elif isinstance(found, msgspec.inspect.Type):
        yield from _patterns([getattr(found, name) for name in found.__struct_fields__])
