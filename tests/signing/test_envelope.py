from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from edge_signing.envelope import Envelope, pae, parse_envelope, seal
from edge_signing.errors import BundleInvalid
from edge_signing.keys import PrivateKey

KEY, OTHER = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)
PAYLOAD = b'{"any":"bytes"}'


def test_pae_agrees_with_the_specification() -> None:
    # DSSE protocol.md, "Test Vectors".
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert pae("http://example.com/HelloWorld", b"hello world") == expected


def test_the_form_is_a_sigstore_bundle() -> None:
    document = json.loads(seal(PAYLOAD, KEY))
    signature = base64.b64encode(KEY.sign(pae("application/vnd.in-toto+json", PAYLOAD))).decode()
    assert document == {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": KEY.public.keyid}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(PAYLOAD).decode(),
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": signature, "keyid": ""}],
        },
    }


def test_round_trip() -> None:
    assert seal(PAYLOAD, KEY) == seal(PAYLOAD, KEY)
    envelope = parse_envelope(seal(PAYLOAD, KEY))
    assert (envelope.payload, envelope.hint) == (PAYLOAD, KEY.public.keyid)
    assert envelope.is_signed_by(KEY.public)
    assert not envelope.is_signed_by(OTHER.public)


def test_the_hint_decides_nothing() -> None:
    document = json.loads(seal(PAYLOAD, KEY))
    document["verificationMaterial"]["publicKey"]["hint"] = OTHER.public.keyid
    envelope = parse_envelope(json.dumps(document).encode())
    assert envelope.is_signed_by(KEY.public)
    assert not envelope.is_signed_by(OTHER.public)


def test_a_signature_over_another_payload_or_type_is_none() -> None:
    signature = KEY.sign(pae("application/vnd.in-toto+json", PAYLOAD))
    assert Envelope(PAYLOAD, signature, "").is_signed_by(KEY.public)
    assert not Envelope(PAYLOAD + b" ", signature, "").is_signed_by(KEY.public)
    for bare in (KEY.sign(PAYLOAD), KEY.sign(pae("text/plain", PAYLOAD))):
        assert not Envelope(PAYLOAD, bare, "").is_signed_by(KEY.public)


Edit = Callable[[dict[str, Any]], object]


def top(**fields: Any) -> Edit:
    return lambda d: d.update(fields)


def dsse(**fields: Any) -> Edit:
    return lambda d: d["dsseEnvelope"].update(fields)


def material(**fields: Any) -> Edit:
    return lambda d: d["verificationMaterial"].update(fields)


def sig(**fields: Any) -> Edit:
    return lambda d: d["dsseEnvelope"]["signatures"][0].update(fields)


REFUSED: dict[str, Edit] = {
    "media type": top(mediaType="application/vnd.dev.sigstore.bundle+json;version=0.2"),
    "media type null": top(mediaType=None),
    "unknown field": top(messageSignature={}),
    "no envelope": lambda d: d.pop("dsseEnvelope"),
    "envelope null": top(dsseEnvelope=None),
    "payload type": dsse(payloadType="application/json"),
    "payload null": dsse(payload=None),
    "payload number": dsse(payload=3),
    "payload url-safe": dsse(payload="-_-_"),
    "payload with line feed": dsse(payload="QUJD\n"),
    "payload not canonical": dsse(payload="QR=="),
    "payload too large": dsse(payload="QUJD" * (2 * 1024 * 1024 // 3 * 2 + 8)),
    "no signature": dsse(signatures=[]),
    "two signatures": lambda d: d["dsseEnvelope"]["signatures"].append({"sig": "QUJD"}),
    "signatures object": dsse(signatures={}),
    "signatures null": dsse(signatures=[None]),
    "sig short": sig(sig="QUJD"),
    "sig empty": sig(sig=""),
    "sig null": sig(sig=None),
    "sig missing": lambda d: d["dsseEnvelope"]["signatures"][0].pop("sig"),
    "sig unknown field": sig(cert="x"),
    "keyid number": sig(keyid=1),
    "certificate": material(certificate={"rawBytes": ""}),
    "tlog": material(tlogEntries=[{}]),
    "tlog null": material(tlogEntries=None),
    "no public key": lambda d: d["verificationMaterial"].pop("publicKey"),
    "hint number": material(publicKey={"hint": 1}),
    "hint missing": material(publicKey={}),
    "hint long": material(publicKey={"hint": "a" * 257}),
    "key inside": material(publicKey={"hint": "", "rawBytes": "QUJD"}),
    "many values": sig(keyid="," * 100),
}


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED.keys())
def test_refused_envelopes(edit: Edit) -> None:
    document = json.loads(seal(PAYLOAD, KEY))
    edit(document)
    with pytest.raises(BundleInvalid):
        parse_envelope(json.dumps(document).encode())


def test_optional_fields_may_be_absent() -> None:
    document = json.loads(seal(PAYLOAD, KEY))
    del document["verificationMaterial"]["tlogEntries"]
    del document["dsseEnvelope"]["signatures"][0]["keyid"]
    assert parse_envelope(json.dumps(document).encode()).is_signed_by(KEY.public)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 10,
        b"\xff\xfe",
        b"[]," * 2_000_000,
        b" " * (3 * 1024 * 1024 + 1),
        b'{"mediaType":NaN}',
        seal(PAYLOAD, KEY)[:-1],
        seal(PAYLOAD, KEY) + b"x",
        seal(PAYLOAD, KEY).replace(b'{"dsse', b'{"mediaType":"","dsse'),
    ],
    ids=lambda data: str(data[:12]),
)
def test_hostile_files(data: bytes) -> None:
    with pytest.raises(BundleInvalid):
        parse_envelope(data)
