"""Names, aliases and versions to entries; every change is whole."""

from __future__ import annotations

import pytest

from edge_agent.errors import ModelNotFoundError, ModelNotReadyError
from edge_agent.serving.registry import Registry, Unmet
from edge_agent.workers.work import Loaded

from .scene import entry

OLD, NEW = entry(version="1.0.0"), entry(version="2.0.0")
OTHER = entry(version="1.0.0", digest="sha256:other")


def table() -> Registry:
    registry = Registry()
    registry.make_live(OLD)
    return registry


def test_what_is_live_answers_without_a_version() -> None:
    registry = table()
    assert registry.put(NEW) == ()
    assert registry.find("acme/a", None) is OLD
    assert registry.find("acme/a", "2.0.0") is NEW
    assert registry.make_live(NEW) == (OLD,)
    assert registry.find("acme/a", None) is registry.live("acme/a") is NEW
    assert registry.make_live(NEW) == ()
    assert [one.ref.version for one in registry] == ["1.0.0", "2.0.0"]
    assert [registry.status(one).is_live for one in registry] == [False, True]


def test_other_bytes_of_a_version_replace_it_where_it_was_live() -> None:
    registry = table()
    assert registry.put(OTHER) == (OLD,)
    assert registry.find("acme/a", None) is registry.find("acme/a", "1.0.0") is OTHER
    assert OLD not in registry
    assert OTHER in registry
    registry.remove(OLD)
    assert registry.find("acme/a", None) is OTHER


def test_other_bytes_that_are_made_live_replace_once() -> None:
    registry = table()
    registry.make_live(NEW)
    assert registry.make_live(OTHER) == (OLD, NEW)
    assert registry.live("acme/a") is OTHER


def test_aliases_mean_a_model_or_a_version_of_it() -> None:
    registry = table()
    registry.put(NEW)
    registry.aliases = {"a": ("acme/a", None), "pinned": ("acme/a", "2.0.0")}
    assert registry.find("a", None) is OLD
    assert registry.find("a", "2.0.0") is NEW
    assert registry.find("pinned", None) is NEW
    assert registry.find("pinned", "1.0.0") is OLD
    assert registry.status(OLD).aliases == ("a",)
    assert registry.status(NEW).aliases == ("pinned",)


def test_a_model_is_not_hidden_by_an_alias() -> None:
    registry = table()
    registry.aliases = {"acme/a": ("acme/b", None)}
    assert registry.find("acme/a", None) is OLD


def test_what_is_removed_is_gone() -> None:
    registry = table()
    registry.remove(OLD)
    registry.remove(OLD)
    assert list(registry) == []
    assert registry.live("acme/a") is None
    with pytest.raises(ModelNotFoundError, match="no model 'acme/a'"):
        registry.find("acme/a", None)


def test_a_version_that_is_not_there_names_those_that_are() -> None:
    registry = table()
    with pytest.raises(ModelNotFoundError, match=r"no version '3.0.0' of 'acme/a'.*1\.0\.0"):
        registry.find("acme/a", "3.0.0")
    assert registry.loaded(OLD.ref.digest) is OLD
    assert registry.loaded("sha256:none") is None


def test_without_a_live_version_nothing_answers_without_a_number() -> None:
    registry = Registry()
    registry.put(NEW)
    registry.aliases = {"a": ("acme/a", None)}
    for name in ("acme/a", "a"):
        with pytest.raises(ModelNotReadyError, match=r"no version of it is live.* 2\.0\.0"):
            registry.find(name, None)
        assert registry.model(name, None).state == "UNAVAILABLE"
        assert registry.find(name, "2.0.0") is NEW


def test_what_should_be_there_is_known_with_its_reason() -> None:
    registry = Registry()
    registry.put(OLD)
    registry.aliases = {"a": ("acme/a", None), "pinned": ("acme/a", "2.0.0")}
    registry.unmet = {("acme/a", "2.0.0"): Unmet("UNAVAILABLE", "not installed", is_live=True)}
    for name, version in (("acme/a", None), ("a", None), ("pinned", None), ("acme/a", "2.0.0")):
        with pytest.raises(ModelNotReadyError, match=r"acme/a 2\.0\.0 is not ready: not installed"):
            registry.find(name, version)
    missing = registry.model("a", None)
    assert (missing.ref.version, missing.state, missing.is_live) == ("2.0.0", "UNAVAILABLE", True)
    assert (missing.reason, missing.aliases) == ("not installed", ("a", "pinned"))
    assert [one.ref.version for one in registry.models()] == ["1.0.0", "2.0.0"]
    registry.make_live(OLD)
    assert registry.find("acme/a", None) is OLD
    assert not registry.model("pinned", None).is_live
    registry.make_live(NEW)
    assert [one.state for one in registry.models()] == ["LOADING", "LOADING"]


def test_what_is_announced_takes_no_place_of_what_answers() -> None:
    first, second, third = entry(version="1.0.0"), entry(version="2.0.0"), entry(version="3.0.0")
    registry = Registry()
    registry.announce(first, is_live=True)
    assert registry.live("acme/a") is first
    first.be("UNAVAILABLE", "it failed")
    registry.announce(second, is_live=True)
    assert registry.live("acme/a") is second
    second.loaded = Loaded(1.0, False, "fake")
    registry.announce(third, is_live=True)
    assert registry.live("acme/a") is second
    assert registry.find("acme/a", "3.0.0") is third
    other = entry(version="2.0.0", digest="sha256:other")
    registry.announce(other, is_live=False)
    assert registry.find("acme/a", "2.0.0") is second
