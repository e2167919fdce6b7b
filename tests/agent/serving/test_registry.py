"""Names, aliases and versions to entries; every change is whole."""

from __future__ import annotations

import pytest

from edge_agent.errors import ModelNotFoundError
from edge_agent.serving.registry import Registry

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


def test_the_only_version_is_found_though_none_is_live() -> None:
    registry = Registry()
    registry.put(NEW)
    assert registry.find("acme/a", None) is NEW
