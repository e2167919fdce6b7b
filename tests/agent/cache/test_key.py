"""Equal keys mean equal questions, and nothing less."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from edge_agent.cache import key, origin
from edge_agent.cache.key import CacheSubject, Origin
from edge_agent.calls import InputTensor, Query

from .conftest import LARGE, SUBJECT, query

TENSOR = InputTensor("x", "float32", (2, 3), b"0123456789abcdef01234567")
QUERY = Query("labels", (TENSOR,), (b"jpeg",), 5, ("scores",))


def of(subject: CacheSubject, asked: Query) -> bytes:
    return key.key(key.head(subject, asked), asked)


def tensor(**more: object) -> Query:
    return structs.replace(QUERY, tensors=(structs.replace(TENSOR, **more),))


OTHER_QUERIES = [
    structs.replace(QUERY, wants="outputs"),
    structs.replace(QUERY, top_k=None),
    structs.replace(QUERY, top_k=6),
    structs.replace(QUERY, outputs=()),
    structs.replace(QUERY, outputs=("sco", "res")),
    structs.replace(QUERY, images=()),
    structs.replace(QUERY, images=(b"jpe", b"g")),
    structs.replace(QUERY, images=(b"jpeG",)),
    structs.replace(QUERY, images=(b"jpeg", b"")),
    structs.replace(QUERY, tensors=()),
    structs.replace(QUERY, tensors=(TENSOR, TENSOR)),
    tensor(name="y"),
    tensor(name="x\ud800"),
    tensor(dtype="int32"),
    tensor(shape=(3, 2)),
    tensor(shape=(6,)),
    tensor(is_json=True),
    tensor(data=b"0123456789abcdef0123456"),
    tensor(data=b"0123456789abcdef01234568"),
    # What one input ends with, the next one begins with.
    structs.replace(
        QUERY, tensors=(structs.replace(TENSOR, data=TENSOR.data[:20]),), images=(b"4567jpeg",)
    ),
]
OTHER_SUBJECTS = [
    structs.replace(SUBJECT, bundle="sha256:" + "c" * 64),
    structs.replace(SUBJECT, pipeline="sha256:" + "c" * 64),
    structs.replace(SUBJECT, tenant="uid:8"),
    structs.replace(SUBJECT, origin=Origin("tflite", ("1",))),
    structs.replace(SUBJECT, origin=Origin("onnx", ("2",))),
    structs.replace(SUBJECT, origin=Origin("onnx", ("1", ""))),
    structs.replace(SUBJECT, origin=Origin("onnx", ())),
    structs.replace(SUBJECT, bundle=SUBJECT.pipeline, pipeline=SUBJECT.bundle),
]


def test_whatever_differs_makes_another_key() -> None:
    keys = [of(SUBJECT, one) for one in [QUERY, *OTHER_QUERIES]]
    keys += [of(one, QUERY) for one in OTHER_SUBJECTS]
    assert len(set(keys)) == len(keys)
    assert {len(one) for one in keys} == {key.KEY_BYTES}


def test_the_kind_of_buffer_is_all_the_same() -> None:
    values = np.arange(6, dtype=np.int32).reshape(2, 3)
    data = values.tobytes()
    same = [data, bytearray(data), memoryview(data), values.data, memoryview(data).cast("i")]
    assert len({of(SUBJECT, tensor(data=one)) for one in same}) == 1


@pytest.mark.parametrize("empty", [b"", np.empty((0, 3), np.float32).data])
def test_empty_inputs(empty: memoryview) -> None:
    assert of(SUBJECT, tensor(data=empty)) == of(SUBJECT, tensor(data=b""))


def test_the_key_is_the_same_in_every_process() -> None:
    """It is kept on the disk: a change of it needs another domain."""
    assert of(SUBJECT, QUERY).hex()[:16] == "df355ecead5084ea"


def test_fingerprints_are_equal_for_equal_inputs_only_where_samples_differ() -> None:
    data = bytes(range(256)) * (LARGE // 256)

    def fingerprint(changed: bytes) -> int:
        asked = query(changed)
        return key.fingerprint(key.head(SUBJECT, asked), asked)

    first = fingerprint(data)
    assert fingerprint(bytes(data)) == first
    for place in (0, LARGE - 1):
        assert fingerprint(data[:place] + b"!" + data[place + 1 :]) != first
    assert fingerprint(data + b"!") != first
    scattered = sum(
        fingerprint(data[:i] + b"!" + data[i + 1 :]) != first for i in range(0, LARGE, 97)
    )
    assert 0 < scattered < LARGE // 97  # it reads a part of the input only
    everything = bytearray(data)
    everything[:] = bytes(255 - one for one in data)
    assert fingerprint(bytes(everything)) != first


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 3000, 3136, 3137, 3200, 6271, 8192])
def test_a_fingerprint_of_what_has_hardly_more_than_the_samples_reads_all(size: int) -> None:
    data = bytes(size)
    asked = query(data)
    first = key.fingerprint(key.head(SUBJECT, asked), asked)
    for place in range(0, min(size, 3200), 61):
        other = query(data[:place] + b"!" + data[place + 1 :])
        if size <= 3136:
            assert key.fingerprint(key.head(SUBJECT, other), other) != first


def test_numbers_fit_in_a_column() -> None:
    assert key.as_number(b"\xff" * 32) == -1
    assert key.as_number(b"\xff" * 7 + b"\x7f" + bytes(24)) == 2**63 - 1


def test_origin_names_what_decides_the_answer() -> None:
    assert origin.local("onnx", "1.2").versions[-1] == "1.2"
    assert origin.local("onnx", "1.2") == origin.local("onnx", "1.2")
    assert origin.local("onnx", "1.2") != origin.local("onnx", "1.3")
    assert any(one.startswith("PIL:") for one in origin.local("onnx").versions)
