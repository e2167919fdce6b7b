"""The envelope: a Sigstore bundle around a DSSE envelope with exactly one signature."""

from __future__ import annotations

from typing import Any, NamedTuple

from edge_signing.ed25519 import PrivateKey, PublicKey
from edge_signing.errors import BundleInvalid
from edge_signing.limits import DEFAULT_LIMITS, MAX_MANIFEST_BYTES
from edge_signing.strict_json import (
    StrictJSONError,
    canonical,
    decode_base64,
    encode_base64,
    parse_object,
)

MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_SIGNATURE_BYTES = 64
_MAX_HINT = 256
# A valid envelope has 14 of `{`, `[` and `,`, and base64 has none of them.
_MAX_TOKENS = 64


class Envelope(NamedTuple):
    """A parsed envelope; nothing in it is believed until `is_signed_by` says so.

    Attributes:
        payload: The bytes that are signed: verify them, and only then parse these same bytes.
        signature: 64 bytes.
        hint: Which key its maker claims to have used. Not signed: it never decides anything.
    """

    payload: bytes
    signature: bytes
    hint: str

    def is_signed_by(self, public_key: PublicKey) -> bool:
        """Tells whether a key signed this payload as an in-toto statement.

        Args:
            public_key: The key.

        Returns:
            True only for a valid Ed25519 signature over the PAE of the received payload bytes.

        Source:
            DSSE protocol 1.0, "Protocol", step 3 of verification.
        """
        return public_key.verifies(self.signature, pae(PAYLOAD_TYPE, self.payload))


def pae(payload_type: str, payload: bytes) -> bytes:
    """Returns what is really signed: the type and the payload, each with its length.

    Args:
        payload_type: The payload's media type.
        payload: Its bytes.

    Returns:
        `DSSEv1 SP LEN(type) SP type SP LEN(payload) SP payload`.

    Source:
        DSSE protocol 1.0, "Signature Definition" (PAE).
    """
    raw_type = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(raw_type), raw_type, len(payload), payload)


def seal(statement: bytes, private_key: PrivateKey) -> bytes:
    """Signs a statement.

    Args:
        statement: The bytes of `manifest.build_statement`.
        private_key: The signer's key.

    Returns:
        The Sigstore bundle as canonical JSON; the same input gives the same bytes.

    Source:
        DSSE protocol 1.0, "Protocol"; Sigstore bundle v0.3 (sigstore_bundle.proto,
        `VerificationMaterial.public_key.hint`, `dsse_envelope` with exactly one signature).
    """
    signature = private_key.sign(pae(PAYLOAD_TYPE, statement))
    return canonical(
        {
            "mediaType": MEDIA_TYPE,
            "verificationMaterial": {
                "publicKey": {"hint": private_key.public.keyid},
                "tlogEntries": [],
            },
            "dsseEnvelope": {
                "payload": encode_base64(statement),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": encode_base64(signature), "keyid": ""}],
            },
        }
    )


class PayloadDecoder:
    """Decodes payloads; one that is spelled as the first was costs a comparison of texts.

    All signatures of a bundle are over the same payload, so that they share its bytes too.
    """

    def __init__(self) -> None:
        """Knows no payload yet."""
        self._text: object = None
        self._payload = b""

    def decode(self, text: object) -> bytes:
        """Decodes a payload; see `strict_json.decode_base64`, and that it is not too large."""
        if self._text is not None and text == self._text:
            return self._payload
        payload = decode_base64(text)
        if len(payload) > MAX_MANIFEST_BYTES:
            raise StrictJSONError(f"has a payload over {MAX_MANIFEST_BYTES} bytes")
        if self._text is None:
            self._text, self._payload = text, payload
        return payload


def parse_envelope(data: bytes, decoder: PayloadDecoder | None = None) -> Envelope:
    """Parses a signature file, without believing it.

    Args:
        data: The file's bytes.
        decoder: The same one for all signature files of a bundle.

    Returns:
        Its payload, signature and hint.

    Raises:
        BundleInvalid: Larger than 3 MiB, JSON that is not strict, an unknown or missing field, a
            media or payload type other than ours, any number of signatures but one, base64 that is
            not canonical, a payload over 4 MiB.

    Source:
        DSSE protocol 1.0, "Protocol"; Sigstore bundle v0.3.
    """
    try:
        document = parse_object(data, DEFAULT_LIMITS.signature_file_bytes, _MAX_TOKENS)
        return _parse(document, decoder or PayloadDecoder())
    except StrictJSONError as error:
        raise BundleInvalid(f"this signature file {error}") from error


def _parse(document: dict[str, Any], decoder: PayloadDecoder) -> Envelope:
    _fields(document, "it", {"mediaType", "verificationMaterial", "dsseEnvelope"})
    _equals(document["mediaType"], MEDIA_TYPE, "mediaType")
    hint = _parse_hint(document["verificationMaterial"])
    dsse = _fields(
        document["dsseEnvelope"], "dsseEnvelope", {"payload", "payloadType", "signatures"}
    )
    _equals(dsse["payloadType"], PAYLOAD_TYPE, "payloadType")
    payload = decoder.decode(dsse["payload"])
    return Envelope(payload, _parse_signatures(dsse["signatures"]), hint)


def _parse_hint(material: Any) -> str:
    fields = _fields(material, "verificationMaterial", {"publicKey"}, {"tlogEntries"})
    if fields.get("tlogEntries", []) != []:
        raise StrictJSONError("has tlogEntries, which no key of ours can check")
    hint = _fields(fields["publicKey"], "publicKey", {"hint"})["hint"]
    if not isinstance(hint, str) or len(hint) > _MAX_HINT:
        raise StrictJSONError(f"has a hint that is not a string of at most {_MAX_HINT} characters")
    return hint


def _parse_signatures(signatures: Any) -> bytes:
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise StrictJSONError("has not exactly one signature")
    fields = _fields(signatures[0], "signatures[0]", {"sig"}, {"keyid"})
    if not isinstance(fields.get("keyid", ""), str):
        raise StrictJSONError("has a keyid that is not a string")
    signature = decode_base64(fields["sig"])
    if len(signature) != _SIGNATURE_BYTES:
        raise StrictJSONError(f"has a signature that is not {_SIGNATURE_BYTES} bytes")
    return signature


def _fields(
    value: Any, where: str, required: set[str], optional: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise StrictJSONError(f"is not valid: {where} is not an object")
    if missing := required - set(value):
        raise StrictJSONError(f"is not valid: {where} lacks {', '.join(sorted(missing))}")
    if unknown := set(value) - required - optional:
        raise StrictJSONError(f"is not valid: {where} has an unknown field {min(unknown)!r}")
    return value


def _equals(value: Any, expected: str, field: str) -> None:
    if value != expected:
        raise StrictJSONError(f"is not valid: {field} is not {expected}")
