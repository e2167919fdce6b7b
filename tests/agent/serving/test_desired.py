"""The document that says what should be served, and the steps to get there."""

from __future__ import annotations

import pytest

from edge_agent.errors import BadInputError
from edge_agent.serving.desired import Desired, DesiredModel, Served, Step, Stored, parse, plan

HEAD = "schema: edge-agent/desired/v1\n"
WHOLE = b"""\
schema: edge-agent/desired/v1
models:
  - {name: acme/a, version: 1.0.0, also: [0.9.0]}
  - {name: acme/b}
aliases:
  a: acme/a
  old: acme/a@0.9.0
"""


def test_reads_yaml_and_json() -> None:
    desired = parse(WHOLE, "desired.yaml")
    assert desired.models == (DesiredModel("acme/a", "1.0.0", ("0.9.0",)), DesiredModel("acme/b"))
    assert desired.targets() == {"a": ("acme/a", None), "old": ("acme/a", "0.9.0")}
    json = b'{"schema": "edge-agent/desired/v1", "models": [{"name": "acme/b"}]}'
    assert parse(json, "desired.json").models == (DesiredModel("acme/b"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: []\n", "schema"),
        ("schema: edge-agent/desired/v2\nmodels: []\n", "v2"),
        (HEAD, "models"),
        (HEAD + "models: [{name: acme/a}]\nmore: 1\n", "more"),
        (HEAD + "models: [{name: acme/a, versoin: 1.0.0}]\n", "versoin"),
        (HEAD + "models: [{name: acme/a, version: one}]\n", "version"),
        (HEAD + "models: [{name: ../a}]\n", "name"),
        (HEAD + "models: [{name: acme/a}, {name: acme/a}]\n", "acme/a is there twice"),
        (HEAD + "models: []\naliases: {a: acme/a}\n", "isn't among the models"),
        (HEAD + "models: [{name: acme}]\naliases: {acme: acme}\n", "is the name of a model"),
        (HEAD + "models: [{name: acme/a}]\naliases: {A b: acme/a}\n", "aliases"),
        (
            HEAD + "models: [{name: acme/a, version: 1.0.0}]\naliases: {b: acme/a@2.0.0}\n",
            "no version or also says",
        ),
        (
            HEAD + "models: [{name: acme/a, also: [2.0.0]}, {name: b}]\naliases: {c: b@2.0.0}\n",
            "no version or also says",
        ),
        (HEAD + "models: *a\n", "line 2"),
    ],
)
def test_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        parse(text.encode(), "desired.yaml")
    assert caught.value.path == "desired.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [{name: a, version: 1.0}]\n", "must be a semantic version"),
        ("models: [{name: a, also: [1]}]\n", "must be a semantic version"),
        ("models: []\naliases: {new: 5}\n", "must be a text"),
    ],
)
def test_what_yaml_takes_for_a_number_needs_quotes(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        parse((HEAD + text).encode(), "desired.yaml")
    assert caught.value.hint == "quote it, so that YAML doesn't take it for a number"


def test_the_rule_for_aliases_is_told() -> None:
    text = HEAD + "models: [{name: a}]\naliases: {b: a, b/c: a}\n"
    with pytest.raises(BadInputError, match="the name 'b/c' must be an alias: lower-case letters"):
        parse(text.encode(), "desired.yaml")


ACTIVE = {"a": ("1", "d1")}
ONE = {"a": Served(("1", "d1"), frozenset({"1"}), frozenset({"1"}))}
TWO = {"a": Served(("1", "d1"), frozenset({"1", "2"}), frozenset({"1", "2"}))}
FAILED = {"a": Served(None, frozenset(), frozenset({"1"}))}
STALE = {"a": Served(("1", "d1"), frozenset(), frozenset({"1"}))}
GONE = {"a": Served(None, frozenset({"1"}), frozenset({"1", "2"}), frozenset({"2"}))}
ALSO_FAILED = {"a": Served(("1", "d1"), frozenset({"1"}), frozenset({"1", "2"}))}


@pytest.mark.parametrize(
    ("models", "served", "active", "steps"),
    [
        ([], {}, {}, []),
        ([DesiredModel("a")], {}, {}, [Step("load", "a", None)]),
        ([DesiredModel("a")], ONE, ACTIVE, []),
        ([DesiredModel("a")], ONE, {}, []),  # the demo isn't installed
        ([DesiredModel("a")], ONE, {"a": ("2", "d2")}, [Step("load", "a", None, "1")]),
        ([DesiredModel("a")], ONE, {"a": ("1", "other")}, [Step("load", "a", None, "1")]),
        ([DesiredModel("a", "1")], ONE, {"a": ("2", "d2")}, []),
        ([DesiredModel("a", "2")], ONE, ACTIVE, [Step("load", "a", "2", "1")]),
        ([DesiredModel("a", "2")], TWO, ACTIVE, [Step("load", "a", "2", "1")]),
        # What becomes live, or is live until then, is not unloaded.
        ([DesiredModel("a")], TWO, {"a": ("2", "d2")}, [Step("load", "a", None, "1")]),
        ([DesiredModel("a")], TWO, ACTIVE, [Step("unload", "a", "2")]),
        ([DesiredModel("a", "1", ("2",))], ONE, ACTIVE, [Step("add", "a", "2")]),
        ([DesiredModel("a", "1", ("2",))], TWO, ACTIVE, []),
        ([DesiredModel("a", "1", ("2",))], ALSO_FAILED, ACTIVE, [Step("add", "a", "2")]),
        (
            [DesiredModel("a", "2", ("1",))],
            ONE,
            ACTIVE,
            [Step("load", "a", "2", "1")],
        ),
        ([], TWO, ACTIVE, [Step("unload", "a", "1"), Step("unload", "a", "2")]),
        # What failed disappears where it isn't desired, and is tried again where it is.
        ([], FAILED, ACTIVE, [Step("unload", "a", "1")]),
        ([DesiredModel("a")], FAILED, ACTIVE, [Step("load", "a", None)]),
        ([DesiredModel("a")], ALSO_FAILED, ACTIVE, [Step("unload", "a", "2")]),
        ([DesiredModel("a", "2")], ALSO_FAILED, ACTIVE, [Step("load", "a", "2", "1")]),
        # Other bytes of a version take its place, and what has left the store goes.
        ([DesiredModel("a", "1")], STALE, ACTIVE, [Step("load", "a", "1", "1")]),
        ([DesiredModel("a")], GONE, ACTIVE, [Step("load", "a", None), Step("unload", "a", "2")]),
        (
            [DesiredModel("a", "2", ("1",))],
            GONE,
            ACTIVE,
            [Step("load", "a", "2"), Step("unload", "a", "2")],
        ),
        ([DesiredModel("b")], ONE, {}, [Step("load", "b", None), Step("unload", "a", "1")]),
    ],
)
def test_takes_just_the_steps_that_it_takes(
    models: list[DesiredModel],
    served: dict[str, Served],
    active: dict[str, tuple[str, str]],
    steps: list[Step],
) -> None:
    desired = Desired("edge-agent/desired/v1", tuple(models))
    assert plan(desired, served, active, {}) == steps


def test_aliases_are_steps_too() -> None:
    models = (DesiredModel("a", "1"),)
    desired = Desired("edge-agent/desired/v1", models, {"new": "a", "moved": "a@1"})
    have = {"moved": ("a", "2"), "gone": ("a", None)}
    assert plan(desired, ONE, ACTIVE, have) == [
        Step("alias", "moved", "a@1", "a@2"),
        Step("alias", "new", "a"),
        Step("alias", "gone", None, "a"),
    ]
    assert plan(desired, ONE, ACTIVE, desired.targets()) == []


def test_what_an_alias_pins_ends_after_the_alias_has_moved() -> None:
    models = (DesiredModel("a", "2"), DesiredModel("b"))
    desired = Desired("edge-agent/desired/v1", models, {"pinned": "a@2"})
    assert plan(desired, ONE, ACTIVE, {"pinned": ("a", "1")}) == [
        Step("load", "a", "2", "1"),
        Step("alias", "pinned", "a@2", "a@1"),
        Step("load", "b", None),
        Step("unload", "a", "1"),
    ]


def test_asks_for_versions_and_for_the_active_one() -> None:
    models = (DesiredModel("a", "2", ("1",)), DesiredModel("b"))
    desired = Desired("edge-agent/desired/v1", models)
    assert [desired.asks_for("a", version) for version in "123"] == [True, True, False]
    assert desired.asks_for("b", "7")
    assert not desired.asks_for("c", "1")


def test_the_store_says_which_bytes_a_version_means() -> None:
    stored = Stored(("1", "new"), (("1", "old"), ("2", "two"), ("1", "new")))
    assert (stored.digest("1"), stored.digest("2"), stored.digest("3")) == ("new", "two", None)
    assert stored.has("old")
    assert not stored.has("other")
