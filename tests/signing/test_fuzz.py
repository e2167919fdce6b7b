"""Whatever bytes arrive: an answer or an error of ours, and never other content as trusted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_signing.bundle import verify
from edge_signing.digest import sha256_hex
from edge_signing.envelope import parse_envelope, seal
from edge_signing.errors import SigningError
from edge_signing.keyring import Keyring
from edge_signing.keys import PrivateKey
from edge_signing.manifest import Resource, build_statement, bundle_digest, parse_statement
from edge_signing.oci_manifest import Layer, build_oci_manifest, parse_oci_manifest
from edge_signing.sources import MemorySource
from edge_signing.strict_json import canonical
from edge_signing.trust import Purpose

ALICE = PrivateKey(b"\x01" * 32)
FILES = {"model.yaml": b"name: x", "weights/w.bin": b"weights"}
STATEMENT = build_statement("acme/det", [Resource(n, sha256_hex(d)) for n, d in FILES.items()])
SIGNATURE_NAME = f"signatures/{ALICE.public.keyid}.sigstore.json"
SIGNATURE = seal(STATEMENT, ALICE)
KEYRING = Keyring().with_key(ALICE.public).with_rule("acme/*", [ALICE.public.keyid])
NOW = datetime(2026, 6, 1, tzinfo=UTC)
OCI = build_oci_manifest([Layer(n, sha256_hex(d), len(d)) for n, d in FILES.items()])


def check(files: dict[str, bytes]) -> str | None:
    """Returns the digest if trusted, None if refused; anything but our errors passes through."""
    try:
        with verify(MemorySource(files), KEYRING, NOW, Purpose.INSTALL) as bundle:
            assert {name: bundle.read(name, 1000) for name in bundle.names()} == FILES
            return bundle.digest
    except SigningError as error:
        str(error).encode("utf-8")
        return None


@st.composite
def mutations(draw: Any, base: bytes) -> bytes:
    data = bytearray(base)
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "insert", "delete", "copy"]))
        if kind == "flip" and data:
            data[position] ^= draw(st.integers(1, 255))
        elif kind == "insert":
            data[position:position] = draw(st.binary(min_size=1, max_size=8))
        elif kind == "delete":
            del data[position : position + draw(st.integers(1, 40))]
        else:
            data[position:position] = data[: draw(st.integers(0, 200))]
    return bytes(data)


@settings(max_examples=600, deadline=None)
@given(mutations(SIGNATURE))
def test_a_mutated_signature_file(data: bytes) -> None:
    assert check({**FILES, SIGNATURE_NAME: data}) in (None, bundle_digest(STATEMENT))


def test_every_byte_of_a_signature_file() -> None:
    for position in range(len(SIGNATURE)):
        for change in (0x01, 0x20, 0x80):
            data = bytearray(SIGNATURE)
            data[position] ^= change
            files = {**FILES, SIGNATURE_NAME: bytes(data)}
            assert check(files) in (None, bundle_digest(STATEMENT))


def test_every_byte_of_the_payload_under_the_old_signature() -> None:
    envelope = parse_envelope(SIGNATURE)
    old = canonical(canonical_payload(STATEMENT))
    assert old in SIGNATURE
    for position in range(len(STATEMENT)):
        data = bytearray(STATEMENT)
        data[position] ^= 0x01
        forged = SIGNATURE.replace(old, canonical(canonical_payload(bytes(data))))
        assert parse_envelope(forged).signature == envelope.signature
        assert check({**FILES, SIGNATURE_NAME: forged}) is None


def canonical_payload(payload: bytes) -> str:
    from edge_signing.strict_json import encode_base64

    return encode_base64(payload)


@settings(max_examples=600, deadline=None)
@given(mutations(STATEMENT))
def test_a_mutated_statement_that_is_signed(payload: bytes) -> None:
    """Even what a trusted key signed is parsed as if by a stranger."""
    digest = check({**FILES, SIGNATURE_NAME: seal(payload, ALICE)})
    assert digest in (None, bundle_digest(payload))
    if digest is not None:
        assert dict(parse_statement(payload).digests) == {
            n: sha256_hex(d) for n, d in FILES.items()
        }


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=12), st.binary(max_size=12), max_size=4))
def test_any_files_beside(extra: dict[str, bytes]) -> None:
    files = {**FILES, SIGNATURE_NAME: SIGNATURE}
    expected = None if set(extra) - set(files) else bundle_digest(STATEMENT)
    assert check({**extra, **files}) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(mutations(KEYRING.serialise()))
def test_a_mutated_keyring(data: bytes) -> None:
    try:
        keyring = Keyring.parse(data)
    except SigningError:
        return
    assert Keyring.parse(keyring.serialise()) == keyring


@settings(max_examples=300, deadline=None)
@given(mutations(OCI))
def test_a_mutated_oci_manifest(data: bytes) -> None:
    try:
        parse_oci_manifest(data)
    except SigningError:
        return


PARSERS = (parse_statement, parse_envelope, Keyring.parse, parse_oci_manifest)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes(data: bytes) -> None:
    for parser in PARSERS:
        try:
            parser(data)
        except SigningError:
            continue


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))
    return [path] + [p for key, child in children for p in places(child, (*path, key))]


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_any_json_value_at_any_place(data: st.DataObject) -> None:
    import json

    parsers: list[tuple[bytes, Callable[[bytes], object]]] = [
        (STATEMENT, parse_statement),
        (SIGNATURE, parse_envelope),
        (KEYRING.serialise(), Keyring.parse),
        (OCI, parse_oci_manifest),
    ]
    base, parser = data.draw(st.sampled_from(parsers))
    document = json.loads(base)
    path = data.draw(st.sampled_from(places(document)))
    value = data.draw(JSON)
    if path:
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value
    else:
        document = value
    try:
        parser(json.dumps(document).encode("utf-8", "surrogatepass"))
    except SigningError as error:
        str(error).encode("utf-8")
