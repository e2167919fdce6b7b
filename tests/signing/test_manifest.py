from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from edge_signing.errors import BundleInvalid
from edge_signing.limits import MAX_MANIFEST_BYTES, MAX_RESOURCES
from edge_signing.manifest import (
    Manifest,
    Resource,
    build_statement,
    bundle_digest,
    parse_statement,
)

A, B = "aa" * 32, "bb" * 32
RESOURCES = [Resource("weights/w.bin", B), Resource("model.yaml", A)]
ROOT = hashlib.sha256(bytes.fromhex(A) + bytes.fromhex(B)).hexdigest()


def test_the_statement_is_what_oms_writes() -> None:
    statement = json.loads(build_statement("acme/det", RESOURCES))
    assert statement == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "acme/det", "digest": {"sha256": ROOT}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": ["signatures"],
            },
            "resources": [
                {"name": "model.yaml", "algorithm": "sha256", "digest": A},
                {"name": "weights/w.bin", "algorithm": "sha256", "digest": B},
            ],
        },
    }


def test_bytes_do_not_depend_on_the_order_and_never_change() -> None:
    statement = build_statement("acme/det", RESOURCES)
    assert statement == build_statement("acme/det", RESOURCES[::-1])
    # If this digest changes, every bundle in the field must be signed again.
    assert bundle_digest(statement) == ("sha256:" + hashlib.sha256(statement).hexdigest())
    assert bundle_digest(statement) == GOLDEN


GOLDEN = "sha256:768c3e0419602f794fd84e5a241d56b33ae9fd6a410835b423611ab9c6ea809a"


def test_round_trip() -> None:
    manifest = parse_statement(build_statement("acme/det", RESOURCES))
    assert manifest == Manifest("acme/det", (RESOURCES[1], RESOURCES[0]))
    assert dict(manifest.digests) == {"model.yaml": A, "weights/w.bin": B}


def test_the_order_is_that_of_oms() -> None:
    names = ["a.txt", "a/b", "a-b"]
    manifest = parse_statement(build_statement("x", [Resource(name, A) for name in names]))
    assert [resource.name for resource in manifest.resources] == ["a/b", "a-b", "a.txt"]


@pytest.mark.parametrize(
    ("name", "resources"),
    [
        ("Acme", RESOURCES),
        ("", RESOURCES),
        ("x", []),
        ("x", [*RESOURCES, Resource("model.yaml", B)]),
        ("x", [*RESOURCES, Resource("Model.yaml", B)]),
        ("x", [Resource("../x", A)]),
        ("x", [Resource("/x", A)]),
        ("x", [Resource("signatures/x", A)]),
        ("x", [Resource("x", A.upper())]),
        ("x", [Resource("a", A), Resource("a/b", A)]),
        ("x", [Resource(f"f{i}", A) for i in range(MAX_RESOURCES + 1)]),
    ],
)
def test_never_builds_what_it_would_refuse(name: str, resources: list[Resource]) -> None:
    with pytest.raises(BundleInvalid):
        build_statement(name, resources)


def test_as_many_files_as_allowed() -> None:
    resources = [Resource(f"f{i:05}", A) for i in range(MAX_RESOURCES)]
    assert len(parse_statement(build_statement("x", resources)).resources) == MAX_RESOURCES


Edit = Callable[[dict[str, Any]], object]


def top(**fields: Any) -> Edit:
    return lambda s: s.update(fields)


def subject(**fields: Any) -> Edit:
    return lambda s: s["subject"][0].update(fields)


def predicate(**fields: Any) -> Edit:
    return lambda s: s["predicate"].update(fields)


def serialization(**fields: Any) -> Edit:
    return lambda s: s["predicate"]["serialization"].update(fields)


def resource(**fields: Any) -> Edit:
    return lambda s: s["predicate"]["resources"][0].update(fields)


REFUSED: dict[str, Edit] = {
    "type": top(_type="https://in-toto.io/Statement/v0.1"),
    "no type": lambda s: s.pop("_type"),
    "predicate type": top(predicateType="https://slsa.dev/provenance/v1"),
    "old OMS predicate": top(predicateType="https://model_signing/Digests/v0.1"),
    "predicate null": top(predicate=None),
    "predicate list": top(predicate=[]),
    "no subject": lambda s: s.pop("subject"),
    "subject empty": top(subject=[]),
    "subject object": top(subject={"0": {}}),
    "two subjects": lambda s: s["subject"].append(s["subject"][0]),
    "subject string": top(subject=["x"]),
    "name number": subject(name=1),
    "name bad": subject(name="../x"),
    "name case": subject(name="Acme/det"),
    "root digest": subject(digest={"sha256": A}),
    "root digest, upper case": subject(digest={"sha256": ROOT.upper()}),
    "second digest": subject(digest={"sha256": ROOT, "sha512": "00"}),
    "digest missing": subject(digest={}),
    "digest string": subject(digest=ROOT),
    "method": serialization(method="shards"),
    "hash type": serialization(hash_type="blake2b"),
    "symlinks": serialization(allow_symlinks=True),
    "symlinks as number": serialization(allow_symlinks=0),
    "ignores more": serialization(ignore_paths=["signatures", "weights"]),
    "ignores nothing": serialization(ignore_paths=[]),
    "ignores a string": serialization(ignore_paths="signatures"),
    "ignores a list": serialization(ignore_paths=["signatures", ["weights"]]),
    "no serialization": lambda s: s["predicate"].pop("serialization"),
    "resources object": predicate(resources={}),
    "resources empty": predicate(resources=[]),
    "resources of strings": predicate(resources=["x"]),
    "resource without name": lambda s: s["predicate"]["resources"][0].pop("name"),
    "resource name number": resource(name=7),
    "resource absolute": resource(name="/etc/passwd"),
    "resource parent": resource(name="../x"),
    "resource backslash": resource(name="..\\x"),
    "resource signature": resource(name="signatures/x"),
    "resource twice": resource(name="weights/w.bin"),
    "resource other case": resource(name="Weights/w.bin"),
    "unsorted": resource(name="z"),
    "sha512": resource(algorithm="sha512"),
    "algorithm missing": lambda s: s["predicate"]["resources"][0].pop("algorithm"),
    "digest upper case": resource(digest=A.upper()),
    "digest short": resource(digest="aa"),
    "digest null": resource(digest=None),
    "digest number": resource(digest=1e300),
    "digests swapped": lambda s: [
        r.update(digest=d) for r, d in zip(s["predicate"]["resources"], [B, A], strict=True)
    ],
}  # fmt: skip


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED.keys())
def test_refused_statements(edit: Edit) -> None:
    statement = json.loads(build_statement("acme/det", RESOURCES))
    edit(statement)
    with pytest.raises(BundleInvalid):
        parse_statement(json.dumps(statement).encode())


@pytest.mark.parametrize(
    "edit",
    [
        top(future={"a": [1.5]}),
        predicate(model_card="x"),
        resource(size=3),
        serialization(ignore_paths=["signatures", ".git", ".gitignore"]),
    ],
)
def test_what_the_specifications_leave_open_is_ignored(edit: Edit) -> None:
    statement = json.loads(build_statement("acme/det", RESOURCES))
    edit(statement)
    assert parse_statement(json.dumps(statement, indent=2).encode()).name == "acme/det"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"_type":"a","_type":"a"}',
        b'{"a":NaN}',
        b'{"a":' + b"1" * 10_000 + b"}",
        b" " * (MAX_MANIFEST_BYTES + 1),
    ],
    ids=lambda payload: str(payload[:12]),
)
def test_hostile_payloads(payload: bytes) -> None:
    with pytest.raises(BundleInvalid):
        parse_statement(payload)
