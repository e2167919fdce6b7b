from __future__ import annotations

import pytest

from edge_signing.errors import (
    BundleChanged,
    BundleInvalid,
    BundleUnreadable,
    KeyFileError,
    KeyringError,
    NotTrusted,
    SigningError,
    printable,
)


@pytest.mark.parametrize(
    "leaf", [BundleUnreadable, BundleInvalid, BundleChanged, NotTrusted, KeyFileError, KeyringError]
)
def test_each_leaf_carries_its_facts(leaf: type[SigningError]) -> None:
    error = leaf("is wrong", path="a/b", hint="do this")
    assert (error.message, error.path, error.hint) == ("is wrong", "a/b", "do this")
    assert str(error) == "a/b: is wrong"
    assert str(leaf("is wrong")) == "is wrong"


def test_a_changed_bundle_is_an_invalid_one() -> None:
    assert issubclass(BundleChanged, BundleInvalid)


@pytest.mark.parametrize("nasty", ["\x1b[2J", "a\nb", "\r", "\u202e", "\ud800", "\x00", "\x9b31m"])
def test_what_a_terminal_obeys_is_escaped(nasty: str) -> None:
    shown = str(BundleInvalid("is wrong", path=f"x{nasty}"))
    assert shown.isprintable()
    shown.encode("utf-8")


def test_ordinary_text_stays() -> None:
    assert printable("Modèle für 猫.onnx") == "Modèle für 猫.onnx"
