from __future__ import annotations

import pytest

from edge_signing.strict_json import (
    StrictJSONError,
    canonical,
    decode_base64,
    encode_base64,
    parse_object,
)

HOSTILE = {
    "empty": b"",
    "not an object": b"[]",
    "null": b"null",
    "a string": b'"x"',
    "trailing": b"{} {}",
    "duplicate key": b'{"a":1,"a":1}',
    "duplicate key by escape": b'{"a":1,"\\u0061":2}',
    "duplicate key, nested": b'{"x":[{"a":1,"a":2}]}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "-Infinity": b'{"a":-Infinity}',
    "infinite by exponent": b'{"a":1e999}',
    "5000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "100k lists": b"[" * 100_000,
    "100k lists in an object": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100k objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "not UTF-8": b'{"a":"\xff"}',
    "UTF-8 surrogate": b'{"a":"\xed\xa0\x80"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a":1}',
    "lone surrogate": b'{"a":"\\ud800"}',
    "lone surrogate, upper case": b'{"a":"\\uD83D"}',
    "lone surrogate as key": b'{"\\udfff":1}',
    "control character": b'{"a":"\x01"}',
    "comment": b"{} // no",
    "single quotes": b"{'a':1}",
    "trailing comma": b'{"a":1,}',
    "NUL": b'{"a":1}\x00',
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_json_is_one_error(data: bytes) -> None:
    with pytest.raises(StrictJSONError):
        parse_object(data, 10_000_000, 10_000_000)


def test_caps_on_bytes_and_values() -> None:
    assert parse_object(b'{"a":1}', 7, 1) == {"a": 1}
    with pytest.raises(StrictJSONError, match="8 bytes"):
        parse_object(b'{"a":1} ', 7, 1)
    with pytest.raises(StrictJSONError, match="too many"):
        parse_object(b'{"a":[]}', 100, 1)


def test_ordinary_json_passes() -> None:
    data = '{"a":"é😀\\ud83d\\ude00 \\\\ud800","b":[1,-2.5,true,null,{}]}'.encode()
    assert parse_object(data, 1000, 1000) == {
        "a": "é😀😀 \\ud800",
        "b": [1, -2.5, True, None, {}],
    }


def test_canonical_json_does_not_depend_on_order() -> None:
    assert (
        canonical({"b": 1, "a": "é"}) == canonical({"a": "é", "b": 1}) == '{"a":"é","b":1}'.encode()
    )


@pytest.mark.parametrize("data", [b"", b"a", b"ab", b"abc", bytes(range(256))])
def test_base64_round_trip(data: bytes) -> None:
    assert decode_base64(encode_base64(data)) == data


@pytest.mark.parametrize(
    "text",
    [
        "QQ",
        "QQ=",
        "QR==",
        "QUJ=",
        "QQ==\n",
        " QQ==",
        "Q Q==",
        "-_==",
        "QQ==QQ==",
        "QQ===",
        "é",
        "=",
        "A",
        1,
        None,
        b"QQ==",
    ],
)
def test_base64_has_one_spelling(text: object) -> None:
    with pytest.raises(StrictJSONError):
        decode_base64(text)
