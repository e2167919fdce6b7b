from __future__ import annotations

import pytest

from edge_signing.errors import BundleInvalid
from edge_signing.names import (
    check_bundle_name,
    check_distinct,
    check_name,
    check_path,
    check_signature_path,
    sort_key,
)

BAD_PATHS = {
    "empty": "",
    "absolute": "/etc/passwd",
    "double slash": "a//b",
    "trailing slash": "a/",
    "dot": "./a",
    "dot inside": "a/./b",
    "parent": "../a",
    "parent inside": "a/../b",
    "parent at the end": "a/..",
    "only parent": "..",
    "backslash": "a\\b",
    "drive with backslash": "C:\\x",
    "NUL": "a\x00b",
    "line feed": "a\nb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "C1": "a\x9b",
    "line separator": "a\u2028b",
    "NFD": "e\u0301",
    "lone surrogate": "a\udcff",
    "long component": "a" * 256,
    "long component in bytes": "é" * 128,
    "long name": "/".join(["a" * 100] * 6),
    "deep": "/".join("a" * 33),
}
BAD_LISTED = {
    "signature": "signatures/x",
    "the folder": "signatures",
    "other case": "Signatures/x",
    "git": ".git/config",
    "gitignore": ".gitignore",
}


@pytest.mark.parametrize("name", BAD_PATHS.values(), ids=BAD_PATHS.keys())
def test_bad_paths_are_refused(name: str) -> None:
    with pytest.raises(BundleInvalid) as caught:
        check_path(name)
    str(caught.value).encode("utf-8")
    with pytest.raises(BundleInvalid):
        check_name(name)


@pytest.mark.parametrize("name", BAD_LISTED.values(), ids=BAD_LISTED.keys())
def test_names_that_a_manifest_cannot_list(name: str) -> None:
    check_path(name)
    with pytest.raises(BundleInvalid):
        check_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "model.yaml",
        "weights/model.onnx",
        "...",
        "a..b",
        "é/猫",
        "a" * 255,
        "/".join("a" * 32),
        "x/signatures/y",
        "x/.gitignore",
        "a b",
        "~",
        "-rf",
        "*",
    ],
)
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["det", "acme/det", "a/b/c", "a-b.c_d/0", "a" * 128])
def test_good_bundle_names(name: str) -> None:
    check_bundle_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "/", "a/", "/a", "a//b", "A", "a..b", "a__b", "-a", "a-", ".", "..", "a/../b", "a b",
        "a*", "a\n", "é", "a" * 129, "a:b", "a@b", "\u0661", "a/" + "b-" * 60,
    ],
)  # fmt: skip
def test_bad_bundle_names(name: str) -> None:
    with pytest.raises(BundleInvalid):
        check_bundle_name(name)


@pytest.mark.parametrize(
    "names",
    [
        ["a", "a"],
        ["a", "A"],
        ["x/a", "x/A"],
        ["x/a", "X/b"],
        ["straße", "STRASSE"],
        ["ﬁ", "fi"],
        ["a", "a/b"],
        ["a/b", "a"],
        ["A", "a/b"],
        ["a/b/c", "a/B"],
        ["K", "K"],
    ],
)
def test_clashing_names(names: list[str]) -> None:
    with pytest.raises(BundleInvalid, match="clash"):
        check_distinct(names)


def test_distinct_names_pass() -> None:
    check_distinct(["a/b", "a/c", "a.txt", "b/a/b", "b/c"])


def test_signature_files_have_one_form() -> None:
    check_signature_path(f"signatures/{'a' * 64}.sigstore.json")
    for name in ("x.sigstore.json", "a" * 64, "A" * 64 + ".sigstore.json", "x/y", ".tmp"):
        with pytest.raises(BundleInvalid):
            check_signature_path(f"signatures/{name}")


def test_sorted_as_oms_does() -> None:
    assert sorted(["a.txt", "a/b", "a", "B"], key=sort_key) == ["B", "a", "a/b", "a.txt"]
