from __future__ import annotations

import hashlib
import pickle

import pytest

from edge_signing.errors import KeyFileError
from edge_signing.keys import PrivateKey, PublicKey

P = 2**255 - 19
# The eight points of small order, and other encodings of some of them
# (libsodium, ge25519_has_small_order).
WEAK = {
    "all zeroes": bytes(32),
    "one": (1).to_bytes(32, "little"),
    "minus one": (P - 1).to_bytes(32, "little"),
    "p": P.to_bytes(32, "little"),
    "p plus one": (P + 1).to_bytes(32, "little"),
    "zero with sign": bytes(31) + b"\x80",
    "one with sign": b"\x01" + bytes(30) + b"\x80",
    "order 8": bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    "order 8, other": bytes.fromhex(
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"
    ),
    "all ones": b"\xff" * 32,
    "not on the curve": b"\x02" + bytes(31),
}

# RFC 8032 section 7.1, TEST 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def test_agrees_with_the_rfc() -> None:
    key = PrivateKey(SEED)
    assert key.public.raw == PUBLIC
    assert key.sign(b"\x72") == SIGNATURE
    assert key.public.verifies(SIGNATURE, b"\x72")


@pytest.mark.parametrize("raw", WEAK.values(), ids=WEAK.keys())
def test_weak_and_malformed_points_are_refused(raw: bytes) -> None:
    with pytest.raises(KeyFileError):
        PublicKey(raw)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_wrong_lengths_are_refused(length: int) -> None:
    with pytest.raises(KeyFileError):
        PublicKey(b"\x01" * length)
    with pytest.raises(KeyFileError):
        PrivateKey(b"\x01" * length)


@pytest.mark.parametrize("bit", range(0, 512, 7))
def test_a_changed_signature_is_none(bit: int) -> None:
    changed = bytearray(SIGNATURE)
    changed[bit // 8] ^= 1 << (bit % 8)
    assert not PublicKey(PUBLIC).verifies(bytes(changed), b"\x72")


def test_a_signature_cannot_be_turned_into_another() -> None:
    order = 2**252 + 27742317777372353535851937790883648493
    s = int.from_bytes(SIGNATURE[32:], "little") + order
    assert not PublicKey(PUBLIC).verifies(SIGNATURE[:32] + s.to_bytes(32, "little"), b"\x72")


@pytest.mark.parametrize("signature", [b"", SIGNATURE[:-1], SIGNATURE + b"\0"])
def test_signatures_of_other_lengths(signature: bytes) -> None:
    assert not PublicKey(PUBLIC).verifies(signature, b"\x72")


def test_the_secret_does_not_show() -> None:
    key = PrivateKey(SEED)
    for shown in (repr(key), str(key), f"{key}"):
        assert SEED.hex() not in shown
        assert "secret" in shown
        assert repr(SEED)[2:-1] not in shown
    with pytest.raises(TypeError):
        pickle.dumps(key)


def test_generated_keys_differ() -> None:
    assert PrivateKey.generate().seed != PrivateKey.generate().seed


def test_encodings() -> None:
    key = PublicKey(PUBLIC)
    assert key.keyid == hashlib.sha256(key.to_der()).hexdigest()
    assert PublicKey.from_pem(key.to_pem()) == key
    assert PublicKey.from_pem(key.to_pem().encode()) == key
    assert PublicKey.from_pem("\r\n " + key.to_pem().replace("\n", "\r\n")) == key
    assert PublicKey.from_base64(key.to_base64()) == key
    assert len({key, PublicKey(PUBLIC)}) == 1


PEM = PublicKey(PUBLIC).to_pem()
BODY = PublicKey(PUBLIC).to_base64()


@pytest.mark.parametrize(
    "pem",
    [
        "",
        "hello",
        BODY,
        PEM.replace("PUBLIC", "RSA PUBLIC"),
        PEM.replace("PUBLIC", "PRIVATE"),
        PEM + PEM,
        PEM.replace(BODY, BODY[:-4]),
        PEM.replace(BODY, BODY + "AAAA"),
        PEM.replace(BODY, BODY.replace("M", "N", 1)),
        PEM.replace(BODY, ""),
        PEM.replace(BODY, "é"),
        b"\xff\xfe",
        '{"schema":"edge-agent/private-key/v1"}',
    ],
)
def test_malformed_pem(pem: str | bytes) -> None:
    with pytest.raises(KeyFileError):
        PublicKey.from_pem(pem)


def test_an_rsa_or_p256_key_is_refused() -> None:
    p256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200") + bytes(65)
    with pytest.raises(KeyFileError, match="not an Ed25519"):
        PublicKey.from_der(p256)
